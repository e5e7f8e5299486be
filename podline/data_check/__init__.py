"""The check of raw data before a conversion, ``podline data check``."""
