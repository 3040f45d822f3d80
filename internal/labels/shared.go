package labels

import "unique"

// WithSharedKeys returns a map with the same entries, whose keys share memory with all other maps
// that it has returned, because most Nodes have the same keys. The values are not shared. It
// returns nil for an empty map.
func WithSharedKeys(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	shared := make(map[string]string, len(m))
	for key, value := range m {
		shared[unique.Make(key).Value()] = value
	}
	return shared
}
