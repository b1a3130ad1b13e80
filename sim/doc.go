// Package sim runs a whole cluster - the production core and host, unchanged -
// in virtual time, breaks its network, disks, clocks and processes by a seed,
// and judges what happened.
//
// It owns: the event heap, the clocks, the nodes' lanes, the nemesis, the
// workload, the trace, the invariants and the scenario language.
//
// Duties and invariants:
//   - One run is one goroutine and one heap ordered by (virtual time, sequence).
//     Everything random comes from one seed through streams named by concern
//     (network, disks, clocks, workload, nemesis, every node), so that taking
//     one fault away leaves the other concerns' draws as they were.
//   - The same seed and options give the same trace hash, in any process.
//   - A run has two phases. Safety: clients work while faults strike. Liveness:
//     everything is healed, and within a bound every publish must succeed, every
//     subscription must drain and the replicas must converge.
//   - A verdict is one of passed, safety broken, liveness broken, crashed,
//     undecided. Running out of a checker's budget is never a pass.
//
// The fault budget. Any number of nodes may crash, pause, be cut off, have a full
// disk or one that fails a call, at the same time during the safety phase: that
// costs availability, and must cost nothing else. Clocks drift by at most half a
// percent and jump by seconds. What was synced is damaged, lost or set back on at
// most one node at a time, and so on at most one machine of each group; the next
// one is not before every group has all its replicas again, each a member in
// force; and never on a node that holds the only copy of something. Damage that
// no rule of recovery could see is not done. See HarmOptions.
// Hence every acknowledged message must be there at the end, on every replica.
//
// The journal's engine is the simulated one, or one that is handed in and works
// over the same simulated disk: see JournalOptions.
//
// Units: virtual time is a time.Duration since the run began; rates are
// chances in 10,000.
package sim
