"""Operations on whole data sets: fingerprint, manifest, validation, changes."""
