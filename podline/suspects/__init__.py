"""Labels that models which did not train on them do not believe, and what a person says of them."""
