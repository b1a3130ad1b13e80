package core

import (
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/probe"
)

// Full is decided before the disk is: below Limits.FreeLow a node's disk counts
// as full, and again as not full above FreeHigh. A leader whose disk is full takes
// no messages, nor does one most of whose group's replicas are on full disks; each
// node says in its packets whether its is. All else goes on: acks and deletes are
// small, and retention makes room.

func (s *Shard) diskSpace(free uint64) {
	was := s.diskLow
	switch {
	case free < s.cfg.Limits.FreeLow:
		s.diskLow = true
	case free >= s.cfg.Limits.FreeHigh:
		s.diskLow = false
	}
	switch {
	case s.diskLow && !was:
		s.cfg.Probe.Hit(probe.DiskLow)
		s.note("the disk is nearly full, %d bytes are free: messages to partitions that this node leads are refused "+
			"until %d are; what other leaders send is still stored, and with no space left this node stops: "+
			"free space, enlarge the disk, or shorten retention", free, s.cfg.Limits.FreeHigh)
		s.makeRoom()
	case was && !s.diskLow:
		s.cfg.Probe.Hit(probe.DiskRoom)
		s.note("the disk has room again, %d bytes are free: messages are taken", free)
	}
}

// A node that is behind with writing its segments takes no more until it has
// caught up: its leaders refuse messages with THROTTLED, and it lets go of what
// other leaders send, who send it again. So a slow disk fills no memory, and a
// slow follower slows nobody else.

// overfull says that a raft message is better sent again later.
func (s *Shard) overfull(m *member, msg *pb.Message) bool {
	full := s.behind && m.g.group.Kind == model.GroupPartition && msg.GetType() == pb.MsgApp && len(msg.GetEntries()) > 0
	if full {
		s.cfg.Probe.Hit(probe.AppendsHeldBack)
	}
	return full
}

// roomAfter gathers what retention drops before a checkpoint lets it go.
const roomAfter = time.Second

// makeRoom brings the next checkpoint forward on a full disk: files of segments
// that were dropped, and of the journal, go with it and not before.
func (s *Shard) makeRoom() {
	if s.diskLow {
		s.journal.checkpointAt = min(s.journal.checkpointAt, s.now.Mono.Add(roomAfter))
	}
}

// room says why a group takes no messages; nil if it does.
func (s *Shard) room(m *member) *model.Error {
	if s.behind {
		return model.Reasoned(model.ResourceExhausted, model.ReasonThrottled, retryHint,
			"the disk of node %s does not keep up with writing segments", s.cfg.Self)
	}
	var low []string
	replicas := m.r.Group().Replicas
	for _, r := range replicas {
		p := s.peer(r.Node)
		if r.Node == s.cfg.Self && s.diskLow || p != nil && p.diskLow && s.reachable(p) {
			low = append(low, string(r.Node))
		}
	}
	if !s.diskLow && 2*len(low) <= len(replicas) {
		return nil
	}
	if !s.diskLow {
		s.cfg.Probe.Hit(probe.OthersDisksLow)
	}
	slices.Sort(low)
	return model.Reasoned(model.ResourceExhausted, model.ReasonDiskFull, time.Second,
		"the disk of node %s is nearly full: free space, or shorten retention; publishing resumes by itself",
		strings.Join(low, ", "))
}
