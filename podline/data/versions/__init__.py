"""Operations on whole data sets: fingerprint, draft, validation, changes."""
