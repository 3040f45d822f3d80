package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate returns an error if the API server would reject the Node because of the contents of its
// record. Users may edit records, and a rejected request keeps the node from joining.
func (p *patches) validate() error {
	errs := metav1validation.ValidateLabels(p.labels, field.NewPath("metadata", "labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(p.annotations, field.NewPath("metadata", "annotations"))...)
	// This is the only annotation whose value the API server validates on Nodes
	// (ValidateNodeSpecificAnnotations in k8s.io/kubernetes/pkg/apis/core/validation).
	if _, isSet := p.ownAnnotations["f:"+corev1.PreferAvoidPodsAnnotationKey]; isSet {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(corev1.PreferAvoidPodsAnnotationKey), "left to the processors"))
	}
	if err := errs.ToAggregate(); err != nil {
		return fmt.Errorf("the saved labels cannot be set on a Node: %w", err)
	}
	return nil
}
