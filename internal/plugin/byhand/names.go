package byhand

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/txn"
)

// ShortName returns a name that users can type: NODE.VERSION for a transaction, and the full name
// for any other ConfigMap.
func ShortName(cm *corev1.ConfigMap) string {
	t, err := txn.Parse(cm)
	if err != nil {
		return cm.Name
	}
	return t.Node + "." + t.Revision.String()
}

// FullName returns the name of the ConfigMap with this short name, or name itself if it is not a
// short name.
func FullName(name string) string {
	if _, _, ok := txn.SplitName(name); ok {
		return name
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return name
	}
	full := txn.NodeHash(name[:dot]) + name[dot:]
	if _, _, ok := txn.SplitName(full); !ok {
		return name // not the name of a transaction
	}
	return full
}
