"""A Prefect server of Podline's: started, guarded, deployed to; the pages that it serves."""
