package txn

import (
	"errors"
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodekeeper.dev/internal/labels"
)

// Validate returns an error unless all keys and values are valid for a Node's labels, annotations
// and taints, see [labels.AnnotationKey] and [labels.TaintKey].
func Validate(own map[string]string) error {
	unusual, annotations := map[string]string{}, map[string]string{}
	for key, value := range own {
		if labels.IsLabel(key) {
			if !isUsual(key, value) {
				unusual[key] = value
			}
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
	if errs := metav1validation.ValidateLabels(unusual, field.NewPath("labels")); len(errs) > 0 {
		return errs[0]
	}
	if errs := apivalidation.ValidateAnnotations(annotations, field.NewPath("annotations")); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// isUsual reports whether a label is valid because all of its parts are short names of letters and
// digits, with dashes, dots and underscores only between two of these. Kubernetes decides about all
// others, see [metav1validation.ValidateLabels]: with its regular expressions, it takes three times
// as long to parse a transaction.
func isUsual(key, value string) bool {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		prefix, name = "", key
	}
	return isUsualName(name) && (value == "" || isUsualName(value)) &&
		(!hasPrefix || isUsualName(prefix) && strings.ToLower(prefix) == prefix && !strings.Contains(prefix, "_"))
}

func isUsualName(text string) bool {
	isBetween := false // the last character is not a letter or a digit
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			isBetween = false
		case (c == '-' || c == '.' || c == '_') && i > 0 && !isBetween:
			isBetween = true
		default:
			return false
		}
	}
	return text != "" && len(text) <= validation.LabelValueMaxLength && !isBetween
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
