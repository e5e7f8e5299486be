"""The data set ``images``: classes of images of one's own, in any of several layouts."""
