"""Results as JSON documents: built of rows, saved, read again, compared.

`document` builds, saves and reads them; each describes the `machine` that it was measured on.
`document_validation` validates what is read, `result_folder` keeps the newest rows of many
documents, and `comparison` lists the differences between two.
"""

__all__: list[str] = []
