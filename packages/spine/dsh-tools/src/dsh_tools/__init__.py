"""Tools as typed functions and the pipeline that runs them."""
