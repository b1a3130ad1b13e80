package meta

import (
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// minMetaVoters is below how many voters a node that joins becomes one at once.
const minMetaVoters = 3

func nodeNotFound(id model.NodeID) *model.Error {
	return model.Errorf(model.NotFound, "node %q is not part of the cluster", id)
}

// joinNode adds a node, or follows one whose data folder is another than before:
// what the old folder held is gone, so each of its replicas is replaced. One that
// serves at another address than before is followed, too.
func (s *state) joinNode(r *call.JoinNode) *model.Error {
	old, ok := s.node(r.Node)
	meta, _ := s.Group(model.MetaGroup)
	if ok && old.Disk == r.Disk {
		if r.Address != "" && r.Address != old.Address { // it moved
			n := *old
			n.Address = r.Address
			s.putNode(&n)
		}
		return nil
	}
	if meta.Change.ID != 0 && meta.Change.Add.Node != r.Node {
		return throttled("another node is joining or leaving")
	}
	n := &model.Node{ID: r.Node, Disk: r.Disk, Address: r.Address}
	if ok {
		n.Draining, n.Leaving = old.Draining, old.Leaving
		s.putNode(n)
		s.startNeeds()
		return nil
	}
	if len(s.nodes) >= MaxNodes {
		return full("nodes", MaxNodes, "remove some first")
	}
	s.putNode(n)
	s.startChange(meta, model.Replica{Node: n.ID, Disk: n.Disk, Learner: voters(meta) >= minMetaVoters}, 0)
	return nil
}

// startChange begins a change of a group that has none under way. add without a
// node adds nobody.
func (s *state) startChange(g *model.Group, add model.Replica, remove model.ReplicaID) {
	n := *g
	n.Change = model.Change{ID: s.nextChange, Remove: remove}
	s.nextChange++
	if add.Node != "" {
		add.ID, add.Joined = s.nextReplica, true
		s.nextReplica++
		n.Change.Add = add
	}
	s.putGroup(&n)
}

// lost is the refusal of what would change the members of a lost group.
func (s *state) lost(g *model.Group) *model.Error {
	if !g.Lost(s.nodes) {
		return nil
	}
	return model.Errorf(model.FailedPrecondition, "%s", model.LostText(s, g))
}

// startNeeds begins what groups need: replicas of folders that are gone are
// replaced, those on draining nodes move, and meta leaves nodes that leave. Of a
// group that nobody can lead any more nothing is begun, since nobody could ever
// report the end: it stays as it is, without a leader, for its folder to come
// back or its topic to be deleted.
func (s *state) startNeeds() {
	load := s.load()
	for _, g := range s.groups {
		if g.Change.ID == 0 && (g.Kind == model.GroupMeta || !g.Lost(s.nodes)) {
			s.startNeed(g, load)
		}
	}
}

func (s *state) startNeed(g *model.Group, load *load) {
	for _, r := range g.Replicas {
		n, ok := s.node(r.Node)
		switch {
		case !ok:
		case n.Leaving && g.Kind == model.GroupMeta:
			if !r.Learner && voters(g) <= minMetaVoters && s.promote(g, r.ID) {
				return
			}
			s.startChange(g, model.Replica{}, r.ID)
			return
		case n.Draining && g.Kind != model.GroupMeta && s.moveAway(g, r, load):
			return
		case n.Disk != r.Disk:
			s.startChange(g, model.Replica{Node: n.ID, Disk: n.Disk, Learner: r.Learner}, r.ID)
			return
		}
	}
	if g.Kind == model.GroupMeta && voters(g) < minMetaVoters {
		s.promote(g, 0)
	}
}

// moveAway begins to replace a replica on another node, if one has room.
func (s *state) moveAway(g *model.Group, r model.Replica, load *load) bool {
	to := s.roomFor(g, load)
	if to != nil {
		s.startChange(g, model.Replica{Node: to.ID, Disk: to.Disk}, r.ID)
	}
	return to != nil
}

// cancel asks the leader of a group to give up a replica that is on its way to a
// node that is to hold none: the node may never come to make it.
func (s *state) cancel(g *model.Group, n model.NodeID) {
	if g.Change.ID != 0 && g.Change.Add.Node == n && !g.Change.Canceled {
		c := *g
		c.Change.Canceled = true
		s.putGroup(&c)
	}
}

// promote makes a learner of meta a voter, and takes out remove, if not 0, in the
// same change: the loss of one more node must not be the end of the cluster.
func (s *state) promote(g *model.Group, remove model.ReplicaID) bool {
	for _, r := range g.Replicas {
		n, ok := s.node(r.Node)
		if !r.Learner || !ok || n.Leaving || n.Disk != r.Disk {
			continue
		}
		r.Learner = false
		c := *g
		c.Change = model.Change{ID: s.nextChange, Add: r, Remove: remove}
		s.nextChange++
		s.putGroup(&c)
		return true
	}
	return false
}

func voters(g *model.Group) int {
	n := 0
	for _, r := range g.Replicas {
		if !r.Learner {
			n++
		}
	}
	return n
}

// roomFor is the node with the fewest replicas that holds none of the group and
// takes new ones; nil if there is none.
func (s *state) roomFor(g *model.Group, load *load) *model.Node {
	best := -1
	for i, n := range s.nodes {
		if !load.closed[i] && !holds(g, n.ID) && (best < 0 || load.replicas[i] < load.replicas[best]) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	load.replicas[best]++
	return s.nodes[best]
}

func holds(g *model.Group, n model.NodeID) bool {
	for _, r := range g.Replicas {
		if r.Node == n {
			return true
		}
	}
	return g.Change.ID != 0 && g.Change.Add.Node == n
}

func (s *state) drainNode(r *call.DrainNode) *model.Error {
	old, ok := s.node(r.Node)
	if !ok {
		return nodeNotFound(r.Node)
	}
	n := *old
	n.Draining = !r.Undo
	s.putNode(&n)
	if r.Undo {
		s.startNeeds()
		return nil
	}
	for _, g := range s.groups {
		if g.Kind != model.GroupMeta && holds(g, n.ID) && len(g.Replicas) >= s.openNodes()+1 {
			s.putNode(old)
			return model.Errorf(model.FailedPrecondition,
				"node %q cannot be drained: a group has replicas: %d; other nodes that take new ones: %d; add a node first",
				n.ID, len(g.Replicas), s.openNodes()-1)
		}
	}
	for _, g := range s.groups {
		if g.Kind != model.GroupMeta {
			s.cancel(g, n.ID)
		}
	}
	s.startNeeds()
	return nil
}

// openNodes counts the nodes that take new replicas.
func (s *state) openNodes() int {
	open := 0
	for _, n := range s.nodes {
		if !n.Draining && !n.Leaving {
			open++
		}
	}
	return open
}

func (s *state) removeNode(r *call.RemoveNode) *model.Error {
	old, ok := s.node(r.Node)
	if !ok {
		return nodeNotFound(r.Node)
	}
	for _, g := range s.groups {
		if err := s.lost(g); err != nil && holds(g, r.Node) {
			return err // draining it would wait for ever
		}
	}
	for _, g := range s.groups {
		if g.Kind != model.GroupMeta && holds(g, r.Node) {
			return model.Errorf(model.FailedPrecondition,
				"node %q still holds replicas; drain it first and wait until it is empty", r.Node)
		}
	}
	meta, _ := s.Group(model.MetaGroup)
	if len(meta.Replicas) == 1 {
		return model.Errorf(model.FailedPrecondition, "node %q is the last one", r.Node)
	}
	n := *old
	n.Leaving = true
	s.putNode(&n)
	s.cancel(meta, n.ID)
	s.startNeeds()
	s.dropLeft()
	return nil
}

func (s *state) rebuildNode(r *call.RebuildNode) *model.Error {
	n, ok := s.node(r.Node)
	if !ok {
		return nodeNotFound(r.Node)
	}
	for _, g := range s.groups {
		if g.Change.ID == 0 || !holds(g, n.ID) {
			continue
		}
		return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retryAfter,
			"group %d, of which node %q holds a replica, is changing its members already; try again later", g.ID, n.ID)
	}
	for _, g := range s.groups {
		for _, m := range g.Replicas {
			if m.Node == n.ID && len(g.Replicas) > 1 && !g.Lost(s.nodes) {
				s.startChange(g, model.Replica{Node: n.ID, Disk: n.Disk, Learner: m.Learner}, m.ID)
				break
			}
		}
	}
	return nil
}

func (s *state) movePartition(r *call.MovePartition) *model.Error {
	t, ok := s.Topic(r.Topic)
	if !ok {
		return model.TopicNotFound(s, r.Topic)
	}
	if int(r.Partition) >= len(t.Partitions) {
		return model.Invalid("partition", "is %d; topic %q has %d, counted from 0", r.Partition, t.Name, len(t.Partitions))
	}
	g, _ := s.Group(t.Partitions[r.Partition])
	to, ok := s.node(r.To)
	if !ok {
		return nodeNotFound(r.To)
	}
	if g.Change.ID != 0 {
		return throttled("partition %d of topic %q is moving already", r.Partition, t.Name)
	}
	if to.Draining || to.Leaving {
		return model.Errorf(model.FailedPrecondition, "node %q takes no new replicas: it is being drained", to.ID)
	}
	if holds(g, to.ID) {
		return model.Errorf(model.FailedPrecondition, "node %q holds a replica of partition %d already", to.ID, r.Partition)
	}
	if err := s.lost(g); err != nil {
		return err
	}
	for _, m := range g.Replicas {
		if m.Node == r.From {
			s.startChange(g, model.Replica{Node: to.ID, Disk: to.Disk}, m.ID)
			return nil
		}
	}
	return model.Errorf(model.FailedPrecondition, "node %q holds no replica of partition %d of topic %q",
		r.From, r.Partition, t.Name)
}

// reportChange records how far a group's leader has carried a change. One that
// is over already is no error: reports are repeated.
func (s *state) reportChange(r *call.ReportChange) *model.Error {
	old, ok := s.Group(r.Group)
	if !ok || old.Change.ID != r.Change {
		return nil
	}
	g := *old
	if r.Removed {
		g.Change.Removed = true
		s.putGroup(&g)
		return nil
	}
	if r.GivenUp {
		s.giveUp(&g)
		return nil
	}
	c := g.Change
	g.Change, g.Replicas = model.Change{}, nil
	promoted := c.Add.ID
	for _, m := range old.Replicas {
		switch {
		case m.ID == promoted && c.Add.ID == 0: // has its place already
		case m.ID == promoted:
			g.Replicas = append(g.Replicas, c.Add)
			c.Add = model.Replica{}
		case m.ID != c.Remove:
			g.Replicas = append(g.Replicas, m)
		case c.Add.ID != 0:
			g.Replicas = append(g.Replicas, c.Add) // in its place, so that the preferred leader's stays one
			c.Add = model.Replica{}
		}
	}
	if c.Add.ID != 0 {
		g.Replicas = append(g.Replicas, c.Add)
	}
	s.putGroup(&g)
	if g.ID == model.MetaGroup {
		s.dropLeft()
	}
	s.startNeeds()
	return nil
}

// giveUp ends a change whose new replica was to be in a folder that is no more, or
// on a node that is to hold none. The group stays as it was, and what it needs is
// begun anew; a node that was joining gets its replica of meta in the folder it
// has now, and where the old replica is out already another takes its place.
func (s *state) giveUp(g *model.Group) {
	c := g.Change
	g.Change = model.Change{}
	s.putGroup(g)
	n, ok := s.node(c.Add.Node)
	if ok && g.ID == model.MetaGroup && c.Remove == 0 && !n.Leaving && !holds(g, n.ID) {
		s.startChange(g, model.Replica{Node: n.ID, Disk: n.Disk, Learner: c.Add.Learner}, 0)
	}
	s.startNeeds()
	if now, _ := s.Group(g.ID); ok && c.Removed && now.Change.ID == 0 {
		s.startChange(now, model.Replica{Node: n.ID, Disk: n.Disk, Learner: c.Add.Learner}, c.Remove)
	}
	s.dropLeft()
}

// dropLeft forgets nodes that were leaving and hold nothing any more.
func (s *state) dropLeft() {
	meta, _ := s.Group(model.MetaGroup)
	s.nodes = drop(s.nodes, func(n *model.Node) bool { return n.Leaving && !holds(meta, n.ID) })
}
