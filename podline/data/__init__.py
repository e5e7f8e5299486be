"""Sources, layouts, records, their order, versions and checks. Needs no TensorFlow; batches are made in input."""
