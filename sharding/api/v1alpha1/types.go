package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterRing is a group of controller instances, its shards, that share out the objects of some
// resources among themselves.
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

// ClusterRingSpec says who the shards are, what they share out, and how objects move.
//
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !has(r.controlledResources) || r.controlledResources.all(c, !self.resources.exists(m, m.group == c.group && m.resource == c.resource)))",message="a resource cannot be both a main resource and a controlled one: remove it from resources or from controlledResources"
// +kubebuilder:validation:XValidation:rule="self.fence != 'Deny' || has(self.shards.serviceAccounts) && size(self.shards.serviceAccounts) > 0",message="fence Deny needs to know the shards: list their service accounts in shards.serviceAccounts"
// +kubebuilder:validation:XValidation:rule="self.handover.onTimeout != 'Force' || self.fence == 'Deny'",message="handover.onTimeout Force takes objects from shards that may still work on them: it requires fence Deny"
type ClusterRingSpec struct {
	// +required
	Shards Shards `json:"shards"`

	// Resources are what is shared out: the main resources, and those that their objects control.
	//
	// +required
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Resources []Resource `json:"resources"`

	// NamespaceSelector selects the namespaces whose objects are shared out. If it is not set, these are
	// all but kube-system and the namespace of the sharder; an empty one selects all. Objects that are
	// cluster-scoped are always shared out.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Assignment is how an object tells its shard: by a label. There is no other way yet.
	//
	// +optional
	// +default="Label"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="assignment cannot be changed: create another ring"
	Assignment Assignment `json:"assignment,omitempty"`

	// +optional
	// +default={}
	Handover Handover `json:"handover,omitzero"`

	// Fence is what the API server does about requests of a shard for an object that another shard has.
	//
	// +optional
	// +default="Audit"
	Fence Fence `json:"fence,omitempty"`
}

// Shards says where the shards of a ring are.
type Shards struct {
	// Namespace is where the shards keep their Leases. Leases of other namespaces do not count. "*" stands
	// for all namespaces, in rings of --compat=timebertt only: they use other label keys.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the namespace of the shards cannot be changed, as objects would be taken from shards that work on them: create another ring"
	Namespace string `json:"namespace"`

	// ServiceAccounts are the names of the service accounts, in that namespace, by which the shards
	// identify themselves. Without any, there is no fence.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
}

// GroupResource names a resource.
type GroupResource struct {
	// Group is the API group, "" for the core group.
	//
	// +required
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`

	// Resource is the plural name, in lower case.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`
}

// Resource is a main resource: its objects are shared out by themselves.
//
// +kubebuilder:validation:XValidation:rule="(self.key == 'Label') == has(self.keyLabel)",message="keyLabel names the label for key Label, and belongs to no other key"
type Resource struct {
	GroupResource `json:",inline"`

	// Key is what an object is shared out by: its name, its namespace, so that the objects of a namespace
	// stay together, or the value of a label.
	//
	// +optional
	// +default="Name"
	Key Key `json:"key,omitempty"`

	// KeyLabel is the key of that label. Objects without it are shared out by their names.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	KeyLabel string `json:"keyLabel,omitempty"`

	// ControlledResources are those whose objects follow the main object that controls them.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=32
	ControlledResources []GroupResource `json:"controlledResources,omitempty"`
}

// Key is what objects are shared out by.
//
// +kubebuilder:validation:Enum=Name;Namespace;Label
type Key string

// The keys.
const (
	KeyName      Key = "Name"
	KeyNamespace Key = "Namespace"
	KeyLabel     Key = "Label"
)

// Assignment is how an object tells its shard.
//
// +kubebuilder:validation:Enum=Label
type Assignment string

// AssignmentLabel means that the shard of an object is in a label of it.
const AssignmentLabel Assignment = "Label"

// Handover says how objects move between shards that live.
type Handover struct {
	// DrainTimeout is how long a shard may take to give an object away before that is a problem.
	//
	// +optional
	// +default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="give at least 1s"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`

	// OnTimeout says what happens then: the sharder goes on waiting, or it assigns the object to the
	// other shard.
	//
	// +optional
	// +default="Wait"
	OnTimeout OnTimeout `json:"onTimeout,omitempty"`

	// Settle is how long the last join of a shard must have been ago before new shards take objects from
	// live ones, so that shards that join together cause one move.
	//
	// +optional
	// +default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('10m')",message="give a duration from 0s to 10m"
	Settle *metav1.Duration `json:"settle,omitempty"`

	// MaxConcurrentMoves is how many objects can be between two shards at any time.
	//
	// +optional
	// +default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrentMoves int32 `json:"maxConcurrentMoves,omitempty"`
}

// OnTimeout is what happens when a shard does not give an object away.
//
// +kubebuilder:validation:Enum=Wait;Force
type OnTimeout string

// The values of OnTimeout.
const (
	Wait  OnTimeout = "Wait"
	Force OnTimeout = "Force"
)

// Fence is what the API server does about requests of shards that have lost an object.
//
// +kubebuilder:validation:Enum=None;Audit;Deny
type Fence string

// The fences.
const (
	FenceNone  Fence = "None"
	FenceAudit Fence = "Audit"
	FenceDeny  Fence = "Deny"
)

// ClusterRingStatus is what the sharder says of a ring.
type ClusterRingStatus struct {
	// ObservedGeneration is the generation of the ring that the conditions are about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Shards is how many shards have a Lease that counts, whatever their state. AvailableShards are those
	// of them that are ready, expired or uncertain.
	//
	// +optional
	Shards int32 `json:"shards"`
	// +optional
	AvailableShards int32 `json:"availableShards"`

	// Moving is how many objects are in a hand-over, Unassigned how many wait for an assignment.
	//
	// +optional
	Moving int32 `json:"moving"`
	// +optional
	Unassigned int32 `json:"unassigned"`

	// Members are the shards, by name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Members []Member `json:"members,omitempty"`

	// +optional
	Table *Table `json:"table,omitempty"`

	// BalancedGeneration is the last generation of the table for which a pass over all objects found
	// nothing to move.
	//
	// +optional
	BalancedGeneration int64 `json:"balancedGeneration,omitempty"`

	// LabelledResources are those whose objects may have sharding labels.
	//
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	LabelledResources []GroupResource `json:"labelledResources,omitempty"`
}

// Member is a shard as the sharder sees it.
type Member struct {
	Name string `json:"name"`
	// State is ready, leaving, expired, uncertain, dead or orphaned.
	State string `json:"state"`
	// Slots is how many slots of the table the shard has.
	Slots int32 `json:"slots"`
}

// MaxShards is how many shards a ring can have.
const MaxShards = 256

// Table says which shard has which slot, and so which objects.
type Table struct {
	// Generation grows with every change of the table.
	Generation int64 `json:"generation"`

	// Shards are the names of the shards that live, in order. One that leaves has no slots.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	Shards []string `json:"shards"`

	// Slots has an index into Shards for each slot.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Slots []int32 `json:"slots,omitempty"`

	// Next is the table as it will be if the shards that are silent are dead. New objects go by it.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Next []int32 `json:"next,omitempty"`
}
