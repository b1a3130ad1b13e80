// Package meta is the cluster's own replicated state: nodes, topics, where
// their partitions are, subscriptions' definitions, producers' ids. A Machine
// is a group.Machine; every node has a replica of its group, and what it has
// applied is the model.Catalog that the node's gateway and groups read.
//
// Duties and invariants:
//   - Apply is a function of state and entry. The leader adds to a request only
//     its wall clock; names, ids and places are all decided in apply.
//   - Ids of groups, replicas, topics, subscriptions and producers come from
//     replicated counters and are never given twice, whatever is deleted.
//   - Whether something exists is decided in apply only: a leader that has been
//     replaced without knowing it must not refuse by what it remembers.
//     Handle refuses by itself only what no state could make right.
//   - What the Catalog returns is never changed in place: a change makes new
//     values, so what was read stays what it was.
//   - Nothing in it refers to what is not there: each topic's partitions are
//     groups of that topic, each subscription's topic exists.
//
// Units: Version is meta's applied raft index; Created is nanoseconds since the
// Unix epoch by the log's own clock, which never goes back.
package meta
