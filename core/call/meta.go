package call

import (
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/core/wire"
)

// CreateTopic defines a topic. The same again succeeds; the name with other
// settings is ALREADY_EXISTS; fewer nodes than replicas is FAILED_PRECONDITION.
type CreateTopic struct {
	Name       string
	Owner      string
	Partitions uint32
	Settings   model.TopicSettings
}

// UpdateTopic sets the settings that are not zero and may raise the number of
// partitions (0: as it is). RetentionBytes of 1<<64-1 lifts its bound.
type UpdateTopic struct {
	Name       string
	Partitions uint32
	Settings   model.TopicSettings
}

// DeleteTopic deletes a topic for good. One with subscriptions needs Force, and
// takes them along. So does one that subscriptions of other topics name as their
// dead-letter topic: those stay, and what is out of attempts there waits.
type DeleteTopic struct {
	Name  string
	Force bool
}

// CreateSubscription defines a subscription whose start is resolved.
type CreateSubscription struct {
	Topic    string
	TopicID  model.TopicID // whose partitions StartsAt is of; 0: not checked
	Name     string
	Start    model.Start
	StartsAt []model.Offset // by partition; later partitions start at 0
	Settings model.SubscriptionSettings
}

// UpdateSubscription sets the settings that are not zero; the mode cannot change.
type UpdateSubscription struct {
	Subscription string
	Settings     model.SubscriptionSettings
}

// DeleteSubscription deletes definition and cursors for good.
type DeleteSubscription struct{ Subscription string }

// OpenProducer gives a name's id and its next epoch.
type OpenProducer struct{ Name string }

// ProducerOpened answers OpenProducer.
type ProducerOpened struct {
	ID    model.ProducerID
	Epoch model.Epoch
}

// Barrier asks for a linearizable point of meta: a node that has applied the
// answered version knows everything defined before the call.
type Barrier struct{}

// Done answers changes and Barrier with meta's applied index.
type Done struct{ MapVersion uint64 }

// Kinds of meta calls.
func (*CreateTopic) Kind() Kind        { return 64 }
func (*UpdateTopic) Kind() Kind        { return 65 }
func (*DeleteTopic) Kind() Kind        { return 66 }
func (*CreateSubscription) Kind() Kind { return 67 }
func (*UpdateSubscription) Kind() Kind { return 68 }
func (*DeleteSubscription) Kind() Kind { return 69 }
func (*OpenProducer) Kind() Kind       { return 70 }
func (*ProducerOpened) Kind() Kind     { return 71 }
func (*Barrier) Kind() Kind            { return 72 }
func (*Done) Kind() Kind               { return 73 }

// CodeTopicSettings codes every field of the settings.
func CodeTopicSettings(c *wire.Codec, v *model.TopicSettings) {
	wire.Uint(c, &v.Replicas)
	c.Duration(&v.RetentionTime)
	wire.Uint(c, &v.RetentionBytes)
	c.Duration(&v.LocalRetentionTime)
	wire.Uint(c, &v.MaxMessageBytes)
}

// CodeSubscriptionSettings codes every field of the settings.
func CodeSubscriptionSettings(c *wire.Codec, v *model.SubscriptionSettings) {
	wire.Uint(c, &v.Mode)
	c.Bool(&v.KeyOrdered)
	c.Duration(&v.AckDeadline)
	c.Duration(&v.SessionTimeout)
	wire.Uint(c, &v.MaxAttempts)
	wire.String(c, &v.DeadLetterTopic)
	c.Duration(&v.MinBackoff)
	c.Duration(&v.MaxBackoff)
	wire.Uint(c, &v.MaxInFlightMember)
	wire.Uint(c, &v.MaxInFlight)
	wire.String(c, &v.Filter)
	c.Duration(&v.ExpireWhenUnusedIn)
}

// Code implements wire.Coder.
func (m *CreateTopic) Code(c *wire.Codec) {
	wire.String(c, &m.Name)
	wire.String(c, &m.Owner)
	wire.Uint(c, &m.Partitions)
	CodeTopicSettings(c, &m.Settings)
}

// Code implements wire.Coder.
func (m *UpdateTopic) Code(c *wire.Codec) {
	wire.String(c, &m.Name)
	wire.Uint(c, &m.Partitions)
	CodeTopicSettings(c, &m.Settings)
}

// Code implements wire.Coder.
func (m *DeleteTopic) Code(c *wire.Codec) {
	wire.String(c, &m.Name)
	c.Bool(&m.Force)
}

// Code implements wire.Coder.
func (m *CreateSubscription) Code(c *wire.Codec) {
	wire.String(c, &m.Topic)
	wire.Uint(c, &m.TopicID)
	wire.String(c, &m.Name)
	codeStart(c, &m.Start)
	wire.Slice(c, &m.StartsAt, func(c *wire.Codec, o *model.Offset) { wire.Uint(c, o) })
	CodeSubscriptionSettings(c, &m.Settings)
}

// Code implements wire.Coder.
func (m *UpdateSubscription) Code(c *wire.Codec) {
	wire.String(c, &m.Subscription)
	CodeSubscriptionSettings(c, &m.Settings)
}

// Code implements wire.Coder.
func (m *DeleteSubscription) Code(c *wire.Codec) { wire.String(c, &m.Subscription) }

// Code implements wire.Coder.
func (m *OpenProducer) Code(c *wire.Codec) { wire.String(c, &m.Name) }

// Code implements wire.Coder.
func (m *ProducerOpened) Code(c *wire.Codec) {
	wire.Uint(c, &m.ID)
	wire.Uint(c, &m.Epoch)
}

// Code implements wire.Coder.
func (m *Barrier) Code(*wire.Codec) {}

// Code implements wire.Coder.
func (m *Done) Code(c *wire.Codec) { wire.Uint(c, &m.MapVersion) }
