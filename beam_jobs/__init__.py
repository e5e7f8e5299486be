"""The conversion as a Beam job: planning and writing of shards. Sources are parsed in ``podline.data``."""
