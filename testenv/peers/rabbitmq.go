package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// emptyAfter is how long a consumer waits for an item before it takes the queue for empty: longer
// than a busy server takes to send the first.
const emptyAfter = 2 * time.Second

// rabbitMQ returns RabbitMQ twice, since it has two types of queues with priorities: classic ones,
// and quorum queues, whose log is replicated by Raft, here with one replica. A channel for each
// client; persistent messages with publisher confirms; for pop basic.get without acknowledgement;
// for work a consumer with a prefetch of 1 and basic.ack, which has no answer; for batches 100
// messages before their confirms, and a prefetch of 100 with one basic.ack.
func rabbitMQ() []Peer {
	// The one in PATH may be a wrapper that changes the user and the folders.
	program, missing := find("rabbitmq-server", "/usr/lib/rabbitmq/bin")
	epmd, missingEpmd := find("epmd")
	if missing == "" {
		missing = missingEpmd
	}

	peer := func(name string, declare declaration) Peer {
		return Peer{
			Name: name, Missing: missing, Without: []string{PopMany},
			Start: func(tb testing.TB, folder string) *Server {
				return startRabbitMQ(tb, program, epmd, folder, declare)
			},
		}
	}

	return []Peer{peer("RabbitMQ_classic", classic), peer("RabbitMQ_quorum", quorum)}
}

// declaration is how a queue for that many priorities is declared in a version of RabbitMQ, how
// many levels of priority it then has, and the lowest of them, the least urgent.
type declaration func(version string, priorities int) (arguments amqp.Table, levels, lowest int)

func classic(_ string, priorities int) (arguments amqp.Table, levels, lowest int) {
	levels = min(priorities, 256)
	return amqp.Table{"x-max-priority": int32(max(levels-1, 1))}, levels, 0
}

// quorum queues take messages without a priority for those with 4. The library sends no priority
// for 0, so of the 32 that there are from version 4.3 on it has 31. Before, 4 and less were one
// level and the others another.
func quorum(version string, priorities int) (arguments amqp.Table, levels, lowest int) {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // An unreadable version is an old one.
	levels, lowest = 1, 0
	switch {
	case major > 4 || major == 4 && minor >= 3:
		levels, lowest = 31, 1
	case major == 4:
		levels, lowest = 2, 4
	}

	return amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}, min(priorities, levels), lowest
}

// startRabbitMQ starts epmd, by which Erlang's nodes find each other, and the server. Erlang would
// leave an epmd behind.
func startRabbitMQ(tb testing.TB, program, epmd, folder string, declare declaration) *Server {
	port := freePort(tb)
	mapper := start(tb, port, nil, epmd, "-address", "127.0.0.1", "-port", port)
	mapper.await(func() error {
		c, err := net.Dial("tcp", mapper.address)
		if err == nil {
			err = c.Close()
		}
		return err
	})

	s := startNode(tb, program, folder, mapper.address)
	dial := func() (*amqp.Connection, error) { return amqp.Dial("amqp://guest:guest@" + s.address) }
	s.await(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		s.Version, _ = c.Properties["version"].(string)
		return c.Close()
	})

	s.Connect = func(clients, connections, priorities int) (all []*Client) {
		arguments, levels, lowest := declare(s.Version, priorities)
		conns := make([]*amqp.Connection, connections)
		for i := range conns {
			var err error
			conns[i], err = dial()
			must(tb, err)
			s.onStop(func() { _ = conns[i].Close() }) // Nothing is under way any more.
		}

		for i := range clients {
			c := &rabbitClient{
				connection: conns[i%connections], queue: queueName(priorities),
				priorities: priorities, levels: levels, lowest: lowest,
			}
			must(tb, c.open(arguments))
			all = append(all, &Client{Push: c.push, Pop: c.pop, Work: c.work, Rest: c.rest})
		}

		return all
	}

	return s
}

func startNode(tb testing.TB, program, folder, epmd string) *Server {
	_, epmdPort, err := net.SplitHostPort(epmd)
	must(tb, err)
	plugins := filepath.Join(folder, "enabled_plugins")
	must(tb, os.WriteFile(plugins, []byte("[].\n"), 0o644))

	port := freePort(tb)
	return start(tb, port, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(),
			"HOME="+folder, // of the cookie
			"ERL_EPMD_ADDRESS=127.0.0.1",
			"ERL_EPMD_PORT="+epmdPort,
			"RABBITMQ_NODENAME=peers@localhost",
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT="+port,
			"RABBITMQ_DIST_PORT="+freePort(tb),
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
			// There is no such file, so none from /etc is used.
			"RABBITMQ_CONF_ENV_FILE="+filepath.Join(folder, "rabbitmq-env.conf"),
			"RABBITMQ_CONFIG_FILE="+filepath.Join(folder, "rabbitmq"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+plugins,
			"RABBITMQ_MNESIA_BASE="+filepath.Join(folder, "data"),
			"RABBITMQ_LOG_BASE="+filepath.Join(folder, "log"),
			"RABBITMQ_PID_FILE="+filepath.Join(folder, "pid"),
			// The script becomes the server, without a shell in between.
			"RUNNING_UNDER_SYSTEMD=true",
		)
	}, program)
}

// rabbitClient is one client. Its consumer has a channel of its own, and lives as long as a turn,
// since it is sent items before it asks for them.
type rabbitClient struct {
	connection                 *amqp.Connection
	channel                    *amqp.Channel
	queue                      string
	priorities, levels, lowest int

	consuming  *amqp.Channel // nil if there is no consumer
	deliveries <-chan amqp.Delivery
	timer      *time.Timer
}

// priority is the message's priority of an item. RabbitMQ has the most urgent last.
func (c *rabbitClient) priority(item Item) uint8 {
	return uint8(c.lowest + c.levels - 1 - item.Priority*c.levels/c.priorities)
}

// open opens the channel and declares the queue.
func (c *rabbitClient) open(arguments amqp.Table) (err error) {
	if c.channel, err = c.connection.Channel(); err != nil {
		return err
	}
	if _, err = c.channel.QueueDeclare(c.queue, true, false, false, false, arguments); err != nil {
		return err
	}
	return c.channel.Confirm(false)
}

func (c *rabbitClient) push(ctx context.Context, items []Item) error {
	confirms := make([]*amqp.DeferredConfirmation, 0, len(items))
	for _, item := range items {
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: item.Value}
		m.Priority = c.priority(item)
		confirm, err := c.channel.PublishWithDeferredConfirm("", c.queue, false, false, m)
		if err != nil {
			return err
		}
		confirms = append(confirms, confirm)
	}

	for _, confirm := range confirms {
		ok, err := confirm.WaitContext(ctx)
		if err != nil {
			return err
		}
		if !ok {
			return errors.New("a message was refused")
		}
	}

	return nil
}

func (c *rabbitClient) pop(context.Context, int) ([][]byte, error) {
	m, ok, err := c.channel.Get(c.queue, true)
	if err == nil && !ok {
		err = ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	return [][]byte{m.Body}, nil
}

// consume starts the client's consumer unless it has one.
func (c *rabbitClient) consume(prefetch int) (err error) {
	if c.consuming != nil {
		return nil
	}
	if c.consuming, err = c.connection.Channel(); err != nil {
		return err
	}
	if err = c.consuming.Qos(prefetch, 0, false); err == nil {
		c.deliveries, err = c.consuming.Consume(c.queue, "", false, false, false, false, nil)
	}

	c.timer = time.NewTimer(emptyAfter)
	return err
}

// receive returns the next item, or ErrEmpty if none comes.
func (c *rabbitClient) receive(ctx context.Context) (amqp.Delivery, error) {
	c.timer.Reset(emptyAfter)
	select {
	case d, ok := <-c.deliveries:
		if !ok {
			return d, errors.New("the consumer was cancelled")
		}
		return d, nil
	case <-c.timer.C:
		return amqp.Delivery{}, ErrEmpty
	case <-ctx.Done():
		return amqp.Delivery{}, context.Cause(ctx)
	}
}

func (c *rabbitClient) work(ctx context.Context, n int) (values [][]byte, err error) {
	if err := c.consume(n); err != nil {
		return nil, err
	}

	var last amqp.Delivery
	for len(values) < n {
		d, err := c.receive(ctx)
		if errors.Is(err, ErrEmpty) && len(values) > 0 {
			break
		}
		if err != nil {
			return nil, err
		}

		last = d
		values = append(values, d.Body)
	}

	return values, last.Ack(n > 1)
}

// rest ends the consumer, so that the queue gets back what it was sent.
func (c *rabbitClient) rest() error {
	if c.consuming == nil {
		return nil
	}
	err := c.consuming.Close()
	c.consuming, c.deliveries = nil, nil
	return err
}
