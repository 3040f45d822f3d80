package byhand

// The pure parts of requests.
var (
	NewImport  = newImport
	EndMissing = endMissing
	Describe   = describe
	Edited     = (*Edit).edited
)

// LabelsOnly reports whether only the labels of the record are imported.
func (i *Import) LabelsOnly() bool { return i.labelsOnly }

// Revision returns the revision of the record to store.
func (i *Import) Revision() string { return i.record.Revision.String() }
