"""Cloud TPUs: their health, their users, when one may be used, and how to repair it."""
