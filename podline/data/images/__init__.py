"""The data set ``images``: the user's own images and classes, in any of several layouts."""
