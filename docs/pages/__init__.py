"""Pages that are written from the code: magics, errors, reference, notebooks. A page of these cannot be out of date."""
