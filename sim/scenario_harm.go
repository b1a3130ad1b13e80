package sim

import (
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

func init() {
	for name, h := range map[string]func(s *scenario, c *command){
		"fill":     (*scenario).fill,
		"failing":  (*scenario).failing,
		"mend":     (*scenario).mend,
		"damage":   (*scenario).damage,
		"wipe":     (*scenario).wipe,
		"copy":     (*scenario).copyFolder,
		"setback":  (*scenario).setBack,
		"settle":   (*scenario).settle,
		"move":     (*scenario).move,
		"transfer": (*scenario).transfer,
		"drain":    (*scenario).drain,
		"undrain":  (*scenario).undrain,
		"add":      (*scenario).add,
		"remove":   (*scenario).remove,
		"update":   (*scenario).update,
		"delete":   (*scenario).deleteTopic,
	} {
		handlers[name] = h
	}
}

// down is a node that a command needs to be stopped.
func (s *scenario) down(c *command) *simNode {
	n := s.node(c, c.arg("node"))
	if n.up {
		c.fail("%s is running; crash it first", n.id)
	}
	return n
}

// fill NODE free=0 leaves a disk so many bytes.
func (s *scenario) fill(c *command) {
	n := s.node(c, c.arg("node"))
	watched := n.harm.watching
	n.fill(c.num("free", 0))
	if n.up && !watched {
		n.watchDisk()
	}
}

// failing NODE sync|write|read [where=PREFIX] makes the next such call fail.
func (s *scenario) failing(c *command) {
	n := s.node(c, c.arg("node"))
	op, ok := diskCalls[c.arg("call")]
	if !ok {
		c.fail("the call is none of sync, write, read")
	}
	n.failing(op, c.str("where", ""))
}

// mend NODE ends what fill and failing did.
func (s *scenario) mend(c *command) { s.node(c, c.arg("node")).disk.Heal() }

// damage NODE [where=PREFIX] changes durable bytes of a stopped node's folder.
func (s *scenario) damage(c *command) {
	n := s.down(c)
	if !n.corrupt(s.w.harms, c.str("where", "")) {
		c.fail("there is nothing to damage")
	}
}

// wipe NODE takes a stopped node's folder away.
func (s *scenario) wipe(c *command) { s.down(c).wipe() }

// copy NODE keeps a copy of a folder, for setback.
func (s *scenario) copyFolder(c *command) {
	n := s.node(c, c.arg("node"))
	n.harm.setback = n.disk.Clone()
}

// setback NODE gives a stopped node the copy in its folder's place.
func (s *scenario) setBack(c *command) {
	n := s.down(c)
	if n.harm.setback == nil {
		c.fail("there is no copy of %s", n.id)
	}
	n.setBackTo(n.harm.setback.Clone())
}

// settle [within=30s] waits until every group has its replicas and prints what
// is missing if that does not come about.
func (s *scenario) settle(c *command) {
	within := c.duration("within", 30*time.Second)
	missing := ""
	s.w.run(within, func() bool {
		missing = s.w.unsettled()
		return missing == ""
	})
	if missing == "" {
		missing = "settled"
	}
	s.print("%s", missing)
}

// tell makes a call of the operator and prints an error.
func (s *scenario) tell(c *command, q call.Client) {
	if _, err := s.askNow(s.client(c, "operator"), q, 5*time.Second); err != nil {
		s.print("%s", failure(err))
	}
}

// move TOPIC [partition=0] from=NODE to=NODE
func (s *scenario) move(c *command) {
	s.tell(c, &call.Admin{Request: &call.MovePartition{Topic: c.arg("topic"),
		Partition: model.Partition(c.num("partition", 0)), From: model.NodeID(c.str("from", "")),
		To: model.NodeID(c.str("to", ""))}})
}

// transfer TOPIC [partition=0] to=NODE
func (s *scenario) transfer(c *command) {
	s.tell(c, &call.TransferPartition{Topic: c.arg("topic"), Partition: model.Partition(c.num("partition", 0)),
		To: model.NodeID(c.str("to", ""))})
}

func (s *scenario) drain(c *command) {
	s.tell(c, &call.Admin{Request: &call.DrainNode{Node: model.NodeID(c.arg("node"))}})
}

func (s *scenario) undrain(c *command) {
	s.tell(c, &call.Admin{Request: &call.DrainNode{Node: model.NodeID(c.arg("node")), Undo: true}})
}

// add starts one more node and prints its name.
func (s *scenario) add(*command) { s.print("%s", s.w.addNode().id) }

// remove NODE takes a drained node out of the cluster and stops it.
func (s *scenario) remove(c *command) {
	n := s.node(c, c.arg("node"))
	q := &call.Admin{Request: &call.RemoveNode{Node: n.id}}
	if _, err := s.askNow(s.client(c, "operator"), q, 5*time.Second); err != nil {
		s.print("%s", failure(err))
		return
	}
	gone := func() bool {
		cat, why := s.w.catalog()
		if why != "" {
			return false
		}
		for _, m := range cat.Nodes() {
			if m.ID == n.id {
				return false
			}
		}
		return true
	}
	if s.w.run(30*time.Second, gone); !gone() {
		s.print("%s is still there", n.id)
		return
	}
	s.w.retire(n)
}

// update TOPIC [partitions=N] [retention=DURATION] [bytes=N]
func (s *scenario) update(c *command) {
	name, parts := c.arg("topic"), uint32(c.num("partitions", 0))
	s.tell(c, &call.Admin{Request: &call.UpdateTopic{Name: name, Partitions: parts, Settings: model.TopicSettings{
		RetentionTime: c.duration("retention", 0), RetentionBytes: c.num("bytes", 0)}}})
	for i := range s.w.opts.Topics {
		if t := &s.w.opts.Topics[i]; t.Name == name && parts > t.Partitions {
			t.Partitions = parts
			s.counts[name] = parts
		}
	}
	s.learnGroups(c, name)
}

// delete TOPIC takes a topic and its subscriptions away.
func (s *scenario) deleteTopic(c *command) {
	name := c.arg("topic")
	s.tell(c, &call.Admin{Request: &call.DeleteTopic{Name: name, Force: true}})
	kept := s.w.opts.Topics[:0]
	for _, t := range s.w.opts.Topics {
		if t.Name != name {
			kept = append(kept, t)
		}
	}
	s.w.opts.Topics = kept
}
