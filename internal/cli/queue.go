package cli

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/pages"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// eachTransaction calls do with every ConfigMap of the transaction namespace, whether it is a transaction or not.
func (c *cluster) eachTransaction(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	err := pages.Each(ctx, c.client, func() client.ObjectList { return &corev1.ConfigMapList{} }, c.TransactionNamespace, func(cm *corev1.ConfigMap) error {
		if cm.Name == record.RootCAName {
			return nil
		}
		return do(cm)
	})
	if err != nil {
		return fmt.Errorf("listing the transactions in namespace %q: %w", c.TransactionNamespace, err)
	}
	return nil
}

// shortName is a name that people can type: NODE.VERSION of a transaction, and the whole name of what is none.
func shortName(cm *corev1.ConfigMap) string {
	t, err := txn.Parse(cm)
	if err != nil {
		return cm.Name
	}
	return t.Node + "." + t.ResourceVersion
}

// fullName returns the name of the ConfigMap of which a person has given the short name, or the name itself.
func fullName(name string) string {
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
