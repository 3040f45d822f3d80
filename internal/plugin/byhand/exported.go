package byhand

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	goyaml "go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// exportedFromAnnotation is the cluster of an exported record: the uid of its namespace
// kube-system.
const exportedFromAnnotation = "nodekeeper.dev/exported-from"

// exportHint is advice for input that is not an export.
const exportHint = "import the output of kubectl nodekeeper export"

// Exported returns the exported form of a record: without fields that the API server sets, and
// without the time since which the node is away, which an import restarts.
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

// ClusterUID returns the identity of a cluster: the uid of its namespace kube-system.
func ClusterUID(ctx context.Context, c client.Reader) (types.UID, error) {
	var namespace corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		return "", fmt.Errorf("identifying the cluster: %w", err)
	}
	return namespace.UID, nil
}

// ReadExported returns the records in a stream of YAML documents. A document that is not a record
// is an error, which names its position.
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

// parseExported returns the record in a document, or nil if the document is empty.
func parseExported(document []byte) (*corev1.ConfigMap, error) {
	if err := isSingle(document); err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := yaml.Unmarshal(document, &fields); err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return nil, nil //nolint:nilnil // an empty document is not an error
	}
	if fields["apiVersion"] == nil || fields["kind"] == nil {
		return nil, fmt.Errorf("it has no apiVersion or no kind, so it is not a record: %s", exportHint)
	}
	if fields["apiVersion"] != "v1" || fields["kind"] != "ConfigMap" { // strict parsing would report an unknown field instead
		return nil, fmt.Errorf("%v %v is not a record: %s", fields["apiVersion"], fields["kind"], exportHint)
	}
	cm := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(document, cm); err != nil {
		return nil, err
	}
	if cm.Name == "" || cm.Name == record.RootCAName {
		return nil, fmt.Errorf("ConfigMap %q is not a record: %s", cm.Name, exportHint)
	}
	r, err := record.Parse(cm)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", cm.Name, err)
	}
	if r.Floor {
		return nil, fmt.Errorf("no labels are saved for node %q: it was forgotten", cm.Name)
	}
	return storable(cm)
}

// isSingle returns an error if the text has more than one document, as only the first would be
// imported. The reader splits the input only at lines of ---.
func isSingle(text []byte) error {
	documents := goyaml.NewDecoder(bytes.NewReader(text))
	var document any
	if err := documents.Decode(&document); err != nil {
		return nil //nolint:nilerr // empty, or an error that the parser reports better
	}
	if err := documents.Decode(&document); !errors.Is(err, io.EOF) {
		return errors.New("it continues after its end: begin each document with a line of ---")
	}
	return nil
}

// storable returns the part of a record that is imported, or an error if the API server would
// refuse it. It omits all other fields of a ConfigMap: an immutable record could never be updated,
// and a record with an owner would be deleted with the owner.
func storable(from *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: from.Name, Labels: from.Labels, Annotations: from.Annotations}, Data: from.Data}
	if problems := apivalidation.ValidateObjectMeta(&cm.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata")); len(problems) > 0 {
		return nil, fmt.Errorf("%q: %w", cm.Name, problems.ToAggregate())
	}
	if err := fits(cm.Data); err != nil {
		return nil, fmt.Errorf("%q: %w", cm.Name, err)
	}
	return cm, nil
}

// fits returns an error if the data of a record is too large for a ConfigMap.
func fits(data map[string]string) error {
	if size := txn.DataBytes(data); size > txn.MaxDataBytes {
		return fmt.Errorf("the labels have %d bytes: a record has room for %d", size, txn.MaxDataBytes)
	}
	return nil
}
