"""Operations on whole data sets: fingerprint, draft, validation, census, changes."""
