"""People, or other instances with joints, as targets of images: annotations, masks, records and truth files."""
