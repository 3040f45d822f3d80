package byhand

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/internal/record"
)

// exportedFromAnnotation is on exported records only: the cluster that they are of, as the uid of
// its namespace kube-system.
const exportedFromAnnotation = "nodekeeper.dev/exported-from"

// Exported returns a record as it is exported: without what a server sets, and without the time
// at which the node was found missing: that count restarts.
func Exported(cm *corev1.ConfigMap, cluster types.UID) *corev1.ConfigMap {
	annotations := map[string]string{exportedFromAnnotation: string(cluster)}
	for key, value := range cm.Annotations {
		if key != record.AwaySinceAnnotation {
			annotations[key] = value
		}
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name, Labels: cm.Labels, Annotations: annotations},
		Data:       cm.Data,
	}
}

// ClusterUID returns what a cluster is known by.
func ClusterUID(ctx context.Context, c client.Reader) (types.UID, error) {
	var namespace corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		return "", fmt.Errorf("finding out which cluster this is: %w", err)
	}
	return namespace.UID, nil
}

// ReadExported returns the records in a stream of YAML documents. One that is none is an error that
// says where it is.
func ReadExported(r io.Reader) ([]*corev1.ConfigMap, error) {
	var records []*corev1.ConfigMap
	seen := map[string]bool{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for i := 1; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading document %d: %w", i, err)
		}
		cm, err := parseExported(document)
		switch {
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", i, err)
		case cm == nil:
			continue
		case seen[cm.Name]:
			return nil, fmt.Errorf("document %d: node %q is there twice", i, cm.Name)
		}
		seen[cm.Name] = true
		records = append(records, cm)
	}
}

// parseExported returns the record of a document, nil if the document is empty.
func parseExported(document []byte) (*corev1.ConfigMap, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(document, &fields); err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return nil, nil //nolint:nilnil // an empty document is none, and no error
	}
	cm := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(document, cm); err != nil {
		return nil, err
	}
	if cm.APIVersion != "v1" || cm.Kind != "ConfigMap" || cm.Name == "" || cm.Name == record.RootCAName {
		return nil, fmt.Errorf("%s %s %q is not a record: import what kubectl nodekeeper export has written", cm.APIVersion, cm.Kind, cm.Name)
	}
	r, err := record.Parse(cm)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", cm.Name, err)
	}
	if r.Floor {
		return nil, fmt.Errorf("nothing is saved of node %q: it was forgotten", cm.Name)
	}
	return cm, nil
}
