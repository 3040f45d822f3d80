package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterRing is a group of controller instances, called shards, and the resources whose objects
// are distributed over them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ring;rings
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Shards,type=integer,JSONPath=`.status.shards`
// +kubebuilder:printcolumn:name=Available,type=integer,JSONPath=`.status.availableShards`
// +kubebuilder:printcolumn:name=Moving,type=integer,JSONPath=`.status.moving`
// +kubebuilder:printcolumn:name=Unassigned,type=integer,JSONPath=`.status.unassigned`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of a ring is part of label keys: use at most 63 characters"
type ClusterRing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ClusterRingSpec `json:"spec"`
	// +optional
	Status ClusterRingStatus `json:"status,omitzero"`
}

// ClusterRingList is a list of rings.
//
// +kubebuilder:object:root=true
type ClusterRingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterRing `json:"items"`
}

// ClusterRingSpec defines the shards, the resources whose objects are distributed over them, and
// how objects move.
//
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !has(r.controlledResources) || r.controlledResources.all(c, !self.resources.exists(m, m.group == c.group && m.resource == c.resource)))",message="a resource cannot be both a main resource and a controlled one: remove it from resources or from controlledResources"
// +kubebuilder:validation:XValidation:rule="self.fence != 'Deny' || has(self.shards.serviceAccounts) && size(self.shards.serviceAccounts) > 0",message="fence Deny requires the identities of the shards: list their service accounts in shards.serviceAccounts"
// +kubebuilder:validation:XValidation:rule="self.handover.onTimeout != 'Force' || self.fence == 'Deny'",message="handover.onTimeout Force takes objects from shards that may still be working on them, so it requires fence Deny"
type ClusterRingSpec struct {
	// +required
	Shards Shards `json:"shards"`

	// Resources are the main resources of the ring, with the resources that their objects control.
	//
	// +required
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Resources []Resource `json:"resources"`

	// NamespaceSelector selects the namespaces whose objects belong to the ring. If it is not set,
	// all namespaces except kube-system and the sharder's own are selected. An empty selector
	// selects all namespaces. Cluster-scoped objects always belong to the ring.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Assignment is how an object is assigned to its shard. Label is the only supported value.
	//
	// +optional
	// +default="Label"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="assignment cannot be changed: create another ring"
	Assignment Assignment `json:"assignment,omitempty"`

	// +optional
	// +default={}
	Handover Handover `json:"handover,omitzero"`

	// Fence is how the API server treats a shard's request for an object that is assigned to
	// another shard, and changes of the sharder's labels by others: None ignores them, Audit
	// records them, and Deny refuses them.
	//
	// +optional
	// +default="Audit"
	Fence Fence `json:"fence,omitempty"`
}

// Shards identifies the shards of a ring.
type Shards struct {
	// Namespace is the namespace of the shards' Leases. Leases in other namespaces do not count.
	// "*" means all namespaces; it is allowed only in rings of --compat=timebertt, which use other
	// label keys.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the namespace of the shards cannot be changed, because objects would be taken from shards that work on them: create another ring"
	Namespace string `json:"namespace"`

	// ServiceAccounts are the names of the shards' service accounts in that namespace, or in any
	// namespace if that is "*". Only callers with these accounts release objects. If the list is empty,
	// there is no fence, and a shard is recognized by the name of its pod.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
}

// GroupResource identifies a resource.
type GroupResource struct {
	// Group is the API group, "" for the core group.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`

	// Resource is the plural name of the resource, in lower case.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`
}

// Resource is a main resource: its objects are assigned to shards independently of each other.
//
// +kubebuilder:validation:XValidation:rule="(self.key == 'Label') == has(self.keyLabel)",message="set keyLabel if and only if key is Label"
type Resource struct {
	GroupResource `json:",inline"`

	// Key is the property of an object that determines its shard: its name, its namespace (which
	// keeps the objects of a namespace together), or the value of a label.
	//
	// +optional
	// +default="Name"
	Key Key `json:"key,omitempty"`

	// KeyLabel is the key of that label. Objects without the label are distributed by name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	KeyLabel string `json:"keyLabel,omitempty"`

	// ControlledResources are resources whose objects follow the main object that controls them.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=32
	ControlledResources []GroupResource `json:"controlledResources,omitempty"`
}

// Key is the property of an object that determines its shard.
//
// +kubebuilder:validation:Enum=Name;Namespace;Label
type Key string

// The supported keys.
const (
	KeyName      Key = "Name"
	KeyNamespace Key = "Namespace"
	KeyLabel     Key = "Label"
)

// Assignment is how an object is assigned to its shard.
//
// +kubebuilder:validation:Enum=Label
type Assignment string

// AssignmentLabel means that a label of the object names its shard.
const AssignmentLabel Assignment = "Label"

// Handover configures how objects move between live shards.
type Handover struct {
	// DrainTimeout is how long a shard may take to release an object before OnTimeout applies.
	//
	// +optional
	// +default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`

	// OnTimeout is the action after DrainTimeout: Wait keeps waiting for the shard, and Force
	// assigns the object to the other shard, if the API server refuses the writes of the former one.
	//
	// +optional
	// +default="Wait"
	OnTimeout OnTimeout `json:"onTimeout,omitempty"`

	// Settle is how long new shards wait after the last join before they take objects from live
	// shards, so that shards that join at about the same time cause only one move. If a
	// shard runs in a pod of its name, the time begins when that pod is ready, or after ten minutes.
	//
	// +optional
	// +default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('10m')",message="must be a duration from 0s to 10m"
	Settle *metav1.Duration `json:"settle,omitempty"`

	// MaxConcurrentMoves is the maximum number of objects in a hand-over at any time.
	//
	// +optional
	// +default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrentMoves int32 `json:"maxConcurrentMoves,omitempty"`
}

// OnTimeout is the action when a shard does not release an object in time.
//
// +kubebuilder:validation:Enum=Wait;Force
type OnTimeout string

// The supported values of OnTimeout.
const (
	Wait  OnTimeout = "Wait"
	Force OnTimeout = "Force"
)

// Fence is how the API server treats requests of shards for objects that are not assigned to them.
//
// +kubebuilder:validation:Enum=None;Audit;Deny
type Fence string

// The supported fences.
const (
	FenceNone  Fence = "None"
	FenceAudit Fence = "Audit"
	FenceDeny  Fence = "Deny"
)

// ClusterRingStatus is the observed state of a ring.
type ClusterRingStatus struct {
	// ObservedGeneration is the generation of the ring that the conditions refer to.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Shards is the number of shards with an accepted Lease, in any state. AvailableShards is the
	// number of shards that are ready, expired or uncertain.
	//
	// +optional
	Shards int32 `json:"shards"`
	// +optional
	AvailableShards int32 `json:"availableShards"`

	// Moving is the number of objects in a hand-over. Unassigned is the number of objects that wait
	// for an assignment.
	//
	// +optional
	Moving int32 `json:"moving"`
	// +optional
	Unassigned int32 `json:"unassigned"`

	// Members are the shards, sorted by name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`

	// +optional
	Table *Table `json:"table,omitempty"`

	// BalancedGeneration is the last generation of the table for which a resync of all objects
	// found no object to move.
	//
	// +optional
	BalancedGeneration int64 `json:"balancedGeneration,omitempty"`

	// LabelledResources are the resources whose objects may have sharding labels.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	LabelledResources []GroupResource `json:"labelledResources,omitempty"`
}

// Member is the observed state of a shard.
type Member struct {
	Name string `json:"name"`
	// State is ready, leaving, expired, uncertain, dead or orphaned.
	State string `json:"state"`
	// Slots is the number of slots that the shard has in the table.
	Slots int32 `json:"slots"`
}

// MaxShards is the maximum number of shards of a ring.
const MaxShards = 256

// Table maps slots to shards, and thereby objects to shards.
type Table struct {
	// Generation is incremented with every change of the table.
	Generation int64 `json:"generation"`

	// Shards are the names of the live shards, sorted. A leaving shard has no slots.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	Shards []string `json:"shards"`

	// Slots holds the index into Shards of each slot's shard.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Slots []int32 `json:"slots,omitempty"`

	// Next is the table without the silent shards. It determines the shard of new objects.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Next []int32 `json:"next,omitempty"`
}
