package sim

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// digestResult hashes what a client was told, for the trace.
func digestResult(result call.ClientResult, err *model.Error) uint64 {
	var d xxhash.Digest
	d.Reset()
	if err != nil {
		fmt.Fprintf(&d, "%d %s %s", err.Code, err.Reason, err.Message)
		return d.Sum64()
	}
	switch r := result.(type) {
	case *call.FetchResult:
		fmt.Fprint(&d, r.Offset, r.Next, r.HighWatermark, r.LogStart)
		hashBatches(&d, r.Batches)
	case *call.PullResult:
		fmt.Fprint(&d, r.Member, r.Generation, r.Skipped)
		for i := range r.Ranges {
			fmt.Fprint(&d, r.Ranges[i].Range)
			hashBatches(&d, r.Ranges[i].Batches)
		}
	case *call.PublishBatchResult:
		fmt.Fprint(&d, r.Base, r.AppendTime, r.Duplicate)
	case *call.PublishResult:
		fmt.Fprint(&d, r.Results)
	default:
		fmt.Fprintf(&d, "%T", result)
	}
	return d.Sum64()
}

func hashBatches(d *xxhash.Digest, vs []batch.View) {
	for _, v := range vs {
		d.Write(v)
	}
}
