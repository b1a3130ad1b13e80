package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
)

// A partition that goes while a checkpoint waits for its segments takes the
// waiting along; otherwise no checkpoint would ever be made again.
func TestCheckpointsGoOnWhenPartitionsGo(t *testing.T) {
	c := newCluster(t, 1, core.Limits{CheckpointBytes: 1})
	c.createTopic("stays", 1, 1)
	c.lane = 3 * time.Millisecond
	for i := range 40 {
		name := fmt.Sprint("goes", i)
		c.createTopic(name, 1, 1)
		c.publish("n1", name, "k", "m")
		// At another moment of the checkpoint each time.
		at := c.now.Add(time.Duration(i) * 50 * time.Microsecond)
		c.until("the moment", func() bool { return c.now >= at })
		must[*call.Done](t)(c.call("n1", &call.Admin{Request: &call.DeleteTopic{Name: name}}))
	}
	shard := c.nodes["n1"].host.Shard()
	had := shard.Load().Checkpoints
	c.publish("n1", "stays", "k", "m")
	c.until("more checkpoints", func() bool { return shard.Load().Checkpoints > had+3 })
}
