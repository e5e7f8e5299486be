"""What happened, and what there is: an entry for every run that ended, and a store's inventory."""
