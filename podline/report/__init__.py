"""The pages: of a run, of all nights, of a comparison. Their figures come from documents; nothing is computed anew."""
