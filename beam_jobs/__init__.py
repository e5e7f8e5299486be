"""The conversion: planning and shard writing, on any Beam runner."""
