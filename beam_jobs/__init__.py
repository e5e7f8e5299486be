"""The conversion: planning and shard writing, as a Beam job."""
