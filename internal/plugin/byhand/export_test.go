package byhand

// The pure parts of requests.
var (
	NewImport  = newImport
	EndMissing = endMissing
	Describe   = describe
	Edited     = (*Edit).edited
)

// Given reports whether only the labels of the record are imported.
func (i *Import) Given() bool { return i.given }

// Revision returns the revision of the record to store.
func (i *Import) Revision() string { return i.record.Revision.String() }
