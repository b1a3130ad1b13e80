package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// A node that does not get ready says whom it waits for: the first time after
// firstWait, then after twice as long each, up to lastWait.
const (
	firstWait = 3 * time.Second
	lastWait  = 5 * time.Minute
)

// waitingFor says whom a node without a leader waits for, and what to do.
func waitingFor(r *call.GetClusterResult) string {
	var missing []string
	for _, s := range r.Nodes {
		if !s.Reachable && s.Node.ID != r.Self {
			missing = append(missing, fmt.Sprintf("%s (%s)", s.Node.ID, s.Node.Address))
		}
	}
	need := "a cluster begins when all of its nodes have answered once, and one that has begun takes this node in " +
		"when most of them answer"
	if up, needed, voters := voters(r); voters > 0 {
		need = fmt.Sprintf("of %d voting nodes %d must be up; now: %d", voters, needed, up)
	}
	if len(missing) == 0 {
		return "waiting for a leader: all nodes answer; " + need
	}
	return fmt.Sprintf("waiting for %s: start what is down, each with its own --data and the same --peers; %s",
		strings.Join(missing, ", "), need)
}

// voters counts the nodes that vote in the meta group and those of them that are
// up, this one included, and says how many are needed; all 0 before a founding.
func voters(r *call.GetClusterResult) (up, needed, all int) {
	reachable := map[model.NodeID]bool{r.Self: true}
	for _, s := range r.Nodes {
		reachable[s.Node.ID] = reachable[s.Node.ID] || s.Reachable
	}
	for _, g := range r.Groups {
		if g.Kind != model.GroupMeta {
			continue
		}
		for _, replica := range g.Replicas {
			if replica.Learner {
				continue
			}
			all++
			if reachable[replica.Node] {
				up++
			}
		}
		return up, all/2 + 1, all
	}
	return 0, 0, 0
}
