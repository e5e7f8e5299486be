"""What kinds of task share whose models answer each image by itself: a kind of an installed package begins here."""
