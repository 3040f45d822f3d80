package placement

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeepCopyInto copies p into out.
func (p *Placeable) DeepCopyInto(out *Placeable) {
	*out = *p
	if p.MaxAllowedVReplicas != nil {
		out.MaxAllowedVReplicas = new(*p.MaxAllowedVReplicas)
	}
	out.Placement = slices.Clone(p.Placement)
}

// DeepCopy returns a copy that shares no memory with p. It returns nil if p is nil.
func (p *Placeable) DeepCopy() *Placeable {
	if p == nil {
		return nil
	}
	out := new(Placeable)
	p.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies p into out.
func (p *Placement) DeepCopyInto(out *Placement) { *out = *p }

// DeepCopy returns a copy of p. It returns nil if p is nil.
func (p *Placement) DeepCopy() *Placement {
	if p == nil {
		return nil
	}
	return new(*p)
}

// DeepCopyInto copies s into out.
func (s *Status) DeepCopyInto(out *Status) {
	*out = *s
	s.Placeable.DeepCopyInto(&out.Placeable)
	out.Releasing = slices.Clone(s.Releasing)
	if s.Conditions != nil {
		out.Conditions = make([]metav1.Condition, len(s.Conditions))
		for i := range s.Conditions {
			s.Conditions[i].DeepCopyInto(&out.Conditions[i])
		}
	}
}

// DeepCopy returns a copy that shares no memory with s. It returns nil if s is nil.
func (s *Status) DeepCopy() *Status {
	if s == nil {
		return nil
	}
	out := new(Status)
	s.DeepCopyInto(out)
	return out
}
