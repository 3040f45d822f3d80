package txn

import (
	"errors"
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodekeeper.dev/internal/labels"
)

// Validate returns an error unless all keys and values are valid for a Node's labels, annotations
// and taints, see [labels.AnnotationKey] and [labels.TaintKey].
func Validate(own map[string]string) error {
	plain, annotations := make(map[string]string, len(own)), map[string]string{}
	for key, value := range own {
		if labels.IsLabel(key) {
			plain[key] = value
			continue
		}
		if annotation, ok := labels.AsAnnotation(key); ok {
			annotations[annotation] = value
			continue
		}
		taint, effect, ok := labels.AsTaint(key)
		if !ok {
			return fmt.Errorf("%q is not the key of a label, an annotation or a taint", key)
		}
		if err := validateTaint(taint, effect, value); err != nil {
			return fmt.Errorf("taint %q: %w", key, err)
		}
	}
	if errs := metav1validation.ValidateLabels(plain, field.NewPath("labels")); len(errs) > 0 {
		return errs[0]
	}
	if errs := apivalidation.ValidateAnnotations(annotations, field.NewPath("annotations")); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

func validateTaint(key, effect, value string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return errors.New(problems[0])
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return errors.New(problems[0])
	}
	switch effect {
	case "NoSchedule", "PreferNoSchedule", "NoExecute":
		return nil
	}
	return fmt.Errorf("unknown effect %q", effect)
}
