package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Catalog is the cluster's map as meta has applied it on this node: topics,
// subscriptions, groups and where their replicas are. What it returns is
// read-only and valid until the next step.
type Catalog interface {
	// Version is meta's applied index. A request made with a newer version than
	// a node has applied is answered STALE_MAP there.
	Version() uint64
	Topic(name string) (*Topic, bool)
	TopicByID(id TopicID) (*Topic, bool)
	// Subscription is addressed as "topic/name".
	Subscription(ref string) (*Subscription, bool)
	SubscriptionByID(id SubscriptionID) (*Subscription, bool)
	Group(id GroupID) (*Group, bool)
	Topics() []*Topic               // by name
	Subscriptions() []*Subscription // by reference
	Groups() []*Group               // by id
	Nodes() []*Node                 // by name
}

// Topic is a topic's definition.
type Topic struct {
	ID         TopicID
	Name       string
	Owner      string
	Settings   TopicSettings
	MapVersion uint32    // partition-count version, from 1; raised by adding partitions
	Partitions []GroupID // by partition number
	Created    Wall
}

// TopicSettings are what CreateTopic and UpdateTopic set.
type TopicSettings struct {
	Replicas           uint32        // 1, 3 or 5
	RetentionTime      time.Duration // 0: DefaultRetention
	RetentionBytes     uint64        // per partition; 0: unbounded
	LocalRetentionTime time.Duration
	MaxMessageBytes    uint32 // 0: MaxMessageBytes
}

// Mode is a subscription's way to share messages out.
type Mode uint8

// Modes.
const (
	ModeOrdered Mode = 0
	ModeShared  Mode = 1
)

// StartKind is where a subscription begins, or a seek goes.
type StartKind uint8

// Kinds of start.
const (
	StartEarliest StartKind = 0
	StartLatest   StartKind = 1
	StartTime     StartKind = 2
	StartOffsets  StartKind = 3 // seek only
	StartSnapshot StartKind = 4 // seek only
)

// Start is a requested place to begin.
type Start struct {
	Kind StartKind
	Time Wall // with StartTime
}

// SubscriptionSettings are what CreateSubscription and UpdateSubscription set.
// Zero durations mean the defaults.
type SubscriptionSettings struct {
	Mode               Mode
	KeyOrdered         bool
	AckDeadline        time.Duration
	SessionTimeout     time.Duration
	MaxAttempts        uint32 // 0: without end
	DeadLetterTopic    string
	MinBackoff         time.Duration
	MaxBackoff         time.Duration
	MaxInFlightMember  uint32 // messages; 0: the default
	MaxInFlight        uint32
	Filter             string
	ExpireWhenUnusedIn time.Duration // 0: never
}

// Subscription is a subscription's definition; its cursors live at its coordinator.
type Subscription struct {
	ID          SubscriptionID
	Topic       TopicID
	TopicName   string
	Name        string
	Start       Start
	StartsAt    []Offset // resolved at creation, by partition; later partitions start at 0
	Settings    SubscriptionSettings
	Coordinator GroupID
	Created     Wall
}

// Ref is how clients address it: "topic/name".
func (s *Subscription) Ref() string { return s.TopicName + "/" + s.Name }

// SplitRef cuts "topic/name" and validates both names.
func SplitRef(field, ref string) (topic, name string, err *Error) {
	topic, name, ok := strings.Cut(ref, "/")
	if !ok {
		return "", "", Invalid(field, "%q is not of the form topic/name", ref)
	}
	if err := ValidateName(field, topic); err != nil {
		return "", "", err
	}
	if err := ValidateName(field, name); err != nil {
		return "", "", err
	}
	return topic, name, nil
}

// GroupKind is what a raft group replicates.
type GroupKind uint8

// Kinds of group.
const (
	GroupMeta        GroupKind = 1
	GroupCoordinator GroupKind = 2
	GroupPartition   GroupKind = 3
)

// Group is a raft group and where its replicas are meant to be.
type Group struct {
	ID        GroupID
	Kind      GroupKind
	Topic     TopicID     // partition groups
	Partition Partition   // partition groups
	Replicas  []Replica   // the first is the preferred leader
	Founders  []ReplicaID // the first voters, for replicas that begin late
	Change    Change      // of its members, under way
}

// Change is a change of a group's members under way. Meta decides it, the
// group's leader carries it out by raft's membership changes, meta records the
// end. One at a time per group.
//
// A replica that moves to another node is added as a learner, caught up, and
// swapped in by one joint change. One that is replaced on its own node (the
// folder was wiped, or is to be rebuilt) is first removed: the node must not
// hold two replicas of a group, and a voter that lost its log must not vote.
type Change struct {
	ID     uint64    // 0: none; never reused
	Add    Replica   // ID 0: none; Learner says what it is to be in the end
	Remove ReplicaID // 0: none
	// Removed says that Remove is out of the group: its node drops it.
	Removed bool
	// Canceled: Add's node is to be drained or removed. A replica that does not
	// vote there yet is given up, be its node alive or not.
	Canceled bool
}

// Member finds a replica by id, one being added included.
func (g *Group) Member(id ReplicaID) (Replica, bool) {
	for _, r := range g.Replicas {
		if r.ID == id {
			return r, true
		}
	}
	if g.Change.ID != 0 && g.Change.Add.ID == id && id != 0 {
		return g.Change.Add, true
	}
	return Replica{}, false
}

// On finds the replica that a data folder of a node is to hold now: the old one
// until it is out of the group, the one being added otherwise.
func (g *Group) On(n NodeID, d DiskID) (Replica, bool) {
	for _, r := range g.Replicas {
		if r.Node == n && r.Disk == d && !(g.Change.Removed && g.Change.Remove == r.ID) {
			return r, true
		}
	}
	if a := g.Change.Add; g.Change.ID != 0 && a.ID != 0 && a.Node == n && a.Disk == d {
		return a, true
	}
	return Replica{}, false
}

// Lost says that no membership this group can be in has a majority of its voters
// on data folders that are still their nodes': it has no leader and will have
// none, so none of its changes can be carried out, unless such a folder comes
// back. A group of one replica is lost with one folder. nodes are the catalog's,
// by name.
func (g *Group) Lost(nodes []*Node) bool {
	adds := g.Change.ID != 0 && g.Change.Add.ID != 0 && !g.Change.Add.Learner
	return g.Stranded(nodes) && !(adds && g.canLead(nodes, true, false)) &&
		!(adds && g.Change.Remove != 0 && g.canLead(nodes, true, true))
}

// Stranded says the same of the memberships without the replica that is being
// added: if that one is no voter yet, it never will be.
func (g *Group) Stranded(nodes []*Node) bool {
	removes := g.Change.ID != 0 && g.Change.Remove != 0
	return !g.canLead(nodes, false, false) && !(removes && g.canLead(nodes, false, true))
}

// canLead says that a majority of the voters can be there, in a membership with
// the replica that is being added or without, and likewise with the one removed.
func (g *Group) canLead(nodes []*Node, added, removed bool) bool {
	voters, there := 0, 0
	count := func(r Replica) {
		voters++
		if !folderGone(nodes, r) {
			there++
		}
	}
	for _, r := range g.Replicas {
		if !r.Learner && !(removed && r.ID == g.Change.Remove) && !(added && r.ID == g.Change.Add.ID) {
			count(r)
		}
	}
	if added {
		count(g.Change.Add)
	}
	return there > voters/2
}

// folderGone says that a replica's node is known with another data folder.
func folderGone(nodes []*Node, r Replica) bool {
	i, ok := slices.BinarySearchFunc(nodes, r.Node, func(n *Node, id NodeID) int { return cmp.Compare(n.ID, id) })
	return ok && nodes[i].Disk != r.Disk
}

// LostText says of a lost group what is lost, with which nodes' folders, and what
// a person can do.
func LostText(c Catalog, g *Group) string {
	what := fmt.Sprintf("group %d", g.ID)
	if t, ok := c.TopicByID(g.Topic); ok && g.Kind == GroupPartition {
		what = fmt.Sprintf("partition %d of topic %q", g.Partition, t.Name)
	}
	var nodes []string
	for _, r := range g.Replicas {
		if folderGone(c.Nodes(), r) {
			nodes = append(nodes, string(r.Node))
		}
	}
	return fmt.Sprintf("%s is lost: its replicas were in data folders that nodes %s have no more, and too few are left; "+
		"start the node with its old folder, or delete the topic", what, strings.Join(nodes, ", "))
}

// Replica is one member of a group. It belongs to a data folder, not only to a
// node's name: a wiped node is another disk and never plays the old replica.
type Replica struct {
	ID      ReplicaID
	Node    NodeID
	Disk    DiskID
	Learner bool // does not vote
	Joined  bool // added to a running group: starts empty and waits for the leader
}

// Node is a process of the cluster.
type Node struct {
	ID      NodeID
	Disk    DiskID
	Address string // host:port where it serves clients and peers
	// Draining: its replicas move to other nodes, and none comes. Leaving: it is
	// being removed from the cluster.
	Draining, Leaving bool
}
