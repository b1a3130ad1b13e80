package call

import (
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/model"
)

// Client is a request a client makes of any node; its gateway resolves it. The
// answer to a type X is *XResult where one is defined, else *Empty.
type Client interface{ client() }

// ClientResult is a gateway's answer.
type ClientResult interface{}

type (
	// Publish sends messages. With a producer they must fall into one partition.
	Publish struct {
		Topic        string
		Messages     []batch.Message
		HasPartition bool
		Partition    model.Partition
		Producer     model.ProducerID // 0: none
		Epoch        model.Epoch
		Sequence     model.Sequence
		Start        bool
	}
	// PublishResult has one outcome per message, in order.
	PublishResult struct{ Results []MessageResult }
	// MessageResult is one message's outcome; Err != nil wins.
	MessageResult struct {
		Partition model.Partition
		Offset    model.Offset
		Duplicate bool
		Err       *model.Error
	}

	// PublishBatch sends one encoded batch to one partition: the Go client's way.
	PublishBatch struct {
		Topic     string
		Partition model.Partition
		Batch     []byte // the gateway owns it from then on
		Start     bool
	}
	// PublishBatchResult gives the first message's offset.
	PublishBatchResult struct {
		Base       model.Offset
		AppendTime model.Wall
		Duplicate  bool
	}

	// Fetch reads without a subscription.
	Fetch struct {
		Topic       string
		Partition   model.Partition
		Offset      model.Offset
		MaxMessages uint32 // 0: as many as MaxBytes allows
		MaxBytes    uint32 // 0: 1 MiB
		Wait        time.Duration
	}
	// FetchResult holds whole batches; only [Offset, Next) of them was asked for.
	FetchResult struct {
		Batches       []batch.View
		Offset, Next  model.Offset
		HighWatermark model.Offset
		LogStart      model.Offset
	}

	// OpenProducerCall opens a producer by name; with Fence it also fences older
	// epochs on the named partitions of Topic (all, when none is named).
	OpenProducerCall struct {
		Name       string
		Fence      bool
		Topic      string
		Partitions []model.Partition
	}
	// OpenProducerCallResult is the producer's id and epoch.
	OpenProducerCallResult struct {
		ID    model.ProducerID
		Epoch model.Epoch
	}

	// Pull asks a subscription for messages.
	Pull struct {
		Subscription string
		Member       model.MemberID
		Static       bool
		PullSequence uint64
		MaxMessages  uint32 // 0: 1000
		MaxBytes     uint32 // 0: 1 MiB
		Wait         time.Duration
	}
	// PullResult holds whole batches per range; only [From, To) is delivered.
	PullResult struct {
		Member     model.MemberID
		Generation model.Generation
		Delivery   uint64 // shared: of all of it
		Ranges     []PulledRange
		Skipped    []Range
	}
	// PulledRange is what one partition gave.
	PulledRange struct {
		Range
		Batches []batch.View
	}

	// Ack acknowledges cumulatively (UpTo) or single offsets ahead of the cursor.
	Ack struct {
		Subscription string
		Member       model.MemberID
		Generation   model.Generation
		UpTo         []PartitionOffset
		Offsets      []PartitionOffset
	}
	// AckCallResult has one result per partition named.
	AckCallResult struct{ Results []AckResult }

	// Nack gives messages back.
	Nack struct {
		Subscription string
		Member       model.MemberID
		Generation   model.Generation
		Offsets      []PartitionOffset
		Deliveries   []uint64
		Delay        time.Duration
	}
	// ExtendLease without offsets is the heartbeat.
	ExtendLease struct {
		Subscription string
		Member       model.MemberID
		Generation   model.Generation
		Offsets      []PartitionOffset
		Deliveries   []uint64
		Extension    time.Duration
	}
	// Seek moves cursors; Partitions empty means all.
	Seek struct {
		Subscription string
		To           model.Start
		Offsets      []PartitionOffset // with StartOffsets
		Snapshot     string            // with StartSnapshot
		Partitions   []model.Partition
	}
	// SeekResult tells where the cursors went.
	SeekResult struct {
		Generation model.Generation
		Cursors    []PartitionOffset
	}
	// LeaveSubscription ends a member's session.
	LeaveSubscription struct {
		Subscription string
		Member       model.MemberID
	}

	// CreateSubscriptionCall defines a subscription; the gateway resolves its start.
	CreateSubscriptionCall struct {
		Topic    string
		Name     string
		Start    model.Start
		Settings model.SubscriptionSettings
	}
	// CreateSubscriptionCallResult is the definition as it stands.
	CreateSubscriptionCallResult struct{ Subscription model.Subscription }
	// Admin passes a change to meta as it is: CreateTopic, UpdateTopic,
	// DeleteTopic, UpdateSubscription or DeleteSubscription; answered by *Done.
	Admin struct{ Request Request }
	// TransferPartition hands the leadership of a partition to its replica on a node.
	TransferPartition struct {
		Topic     string
		Partition model.Partition
		To        model.NodeID
	}
	// GetTopic describes a topic, freshly.
	GetTopic struct{ Name string }
	// GetTopicResult joins definition and partitions.
	GetTopicResult struct {
		Topic      model.Topic
		Partitions []PartitionStatus
	}
	// PartitionStatus is one partition's; Err tells why the rest is missing.
	PartitionStatus struct {
		Partition     model.Partition
		Leader        model.NodeID
		Replicas      []model.NodeID
		LogStart      model.Offset
		HighWatermark model.Offset
		Bytes         uint64
		AtRisk        bool // fewer live replicas than the topic asks for
		Err           *model.Error
	}
	// ListTopics lists definitions by name.
	ListTopics struct{}
	// ListTopicsResult answers ListTopics.
	ListTopicsResult struct{ Topics []model.Topic }
	// GetSubscription describes a subscription, freshly.
	GetSubscription struct{ Subscription string }
	// GetSubscriptionResult joins definition, coordinator's state and partitions.
	GetSubscriptionResult struct {
		Subscription model.Subscription
		Description  Description
		Partitions   []SubscriptionPartition
	}
	// SubscriptionPartition is one partition's share.
	SubscriptionPartition struct {
		CursorState
		HighWatermark model.Offset
		LogStart      model.Offset
		Lag           uint64
		OldestTime    model.Wall // append time at the cursor; 0: nothing unacked
		Err           *model.Error
	}
	// ListSubscriptions lists definitions, of one topic or all.
	ListSubscriptions struct{ Topic string }
	// ListSubscriptionsResult answers ListSubscriptions.
	ListSubscriptionsResult struct{ Subscriptions []model.Subscription }
	// GetCluster describes nodes and groups as this node knows them.
	GetCluster struct{}
	// GetClusterResult answers GetCluster.
	GetClusterResult struct {
		Self       model.NodeID
		MapVersion uint64
		Nodes      []NodeStatus
		Groups     []GroupStatus
	}
	// NodeStatus is one node's.
	NodeStatus struct {
		model.Node
		Reachable bool
	}
	// GroupStatus is one group's; the leader is as this node knows it.
	GroupStatus struct {
		model.Group
		Leader model.NodeID
		Term   uint64
	}
)

func (*Publish) client()                {}
func (*PublishBatch) client()           {}
func (*Fetch) client()                  {}
func (*OpenProducerCall) client()       {}
func (*Pull) client()                   {}
func (*Ack) client()                    {}
func (*Nack) client()                   {}
func (*ExtendLease) client()            {}
func (*Seek) client()                   {}
func (*LeaveSubscription) client()      {}
func (*CreateSubscriptionCall) client() {}
func (*Admin) client()                  {}
func (*TransferPartition) client()      {}
func (*GetTopic) client()               {}
func (*ListTopics) client()             {}
func (*GetSubscription) client()        {}
func (*ListSubscriptions) client()      {}
func (*GetCluster) client()             {}
