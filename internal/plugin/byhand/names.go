package byhand

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/txn"
)

// ShortName returns a name that people can type: NODE.VERSION of a transaction, and the whole name
// of what is none.
func ShortName(cm *corev1.ConfigMap) string {
	t, err := txn.Parse(cm)
	if err != nil {
		return cm.Name
	}
	return t.Node + "." + t.Revision.String()
}

// FullName returns the name of the ConfigMap of which a person has given the short name, or the
// name itself.
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
		return name // no transaction, by its name
	}
	return full
}
