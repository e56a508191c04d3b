package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// rabbitMQ returns RabbitMQ twice, since it has two types of queues with priorities: classic ones,
// and quorum queues, whose log is replicated by Raft, here with one replica. A channel for each
// client; persistent messages with publisher confirms; for pop basic.get without acknowledgement;
// for work a consumer with a prefetch of 1 and basic.ack, which has no answer; for batches 100
// messages before their confirms, and a prefetch of 100 with one basic.ack.
func rabbitMQ() []Peer {
	// The one in PATH may be a wrapper that changes the user and the folders.
	program, missing := find("rabbitmq-server", "/usr/lib/rabbitmq/bin")
	epmd, missingEpmd := find("epmd")
	peer := func(name string, quorum bool) Peer {
		return Peer{
			Name: name, Missing: cmp.Or(missing, missingEpmd),
			Does: []string{Push, Pop, Work, PushMany, WorkMany},
			command: func(s *Server, folder, port string) *exec.Cmd {
				epmdPort := startEpmd(s.tb, epmd)
				return rabbitMQCommand(s.tb, program, folder, port, epmdPort)
			},
			dial: func(s *Server, queue string, priorities int) (func() (*Client, error), error) {
				return dialRabbitMQ(s, queue, priorities, quorum)
			},
		}
	}

	return []Peer{peer("RabbitMQ_classic", false), peer("RabbitMQ_quorum", true)}
}

// declaration returns how a queue for that many priorities is declared in a version of RabbitMQ,
// how many levels of priority it then has, and the lowest of them, the least urgent.
//
// Quorum queues take messages without a priority for those with 4. The library sends no priority
// for 0, so of the 32 that there are from version 4.3 on it has 31. Before, 4 and less were one
// level and the others another.
func declaration(
	quorum bool, version string, priorities int,
) (arguments amqp.Table, levels, lowest int) {
	if !quorum {
		levels = min(priorities, 256)
		return amqp.Table{"x-max-priority": int32(max(levels-1, 1))}, levels, 0
	}

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

// startEpmd starts the program by which Erlang's nodes find each other, and returns its port.
// Erlang would leave it behind.
func startEpmd(tb testing.TB, program string) (port string) {
	port = freePort(tb)
	cmd := harness.CommandContext(tb.Context(), program, "-address", "127.0.0.1", "-port", port)
	must(tb, cmd.Start())
	tb.Cleanup(func() { _ = cmd.Wait() }) // it is killed by then
	testenv.Eventually(tb, func() error {
		return harness.Command(program, "-port", port, "-names").Run()
	})
	return port
}

func rabbitMQCommand(tb testing.TB, program, folder, port, epmdPort string) *exec.Cmd {
	cmd := harness.Command(program)
	cmd.Env = append(os.Environ(),
		"HOME="+folder, // of the cookie
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_EPMD_PORT="+epmdPort,
		"RABBITMQ_NODENAME=peers@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT="+port,
		"RABBITMQ_DIST_PORT="+freePort(tb),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		// There are no such files, so none from /etc are used.
		"RABBITMQ_CONF_ENV_FILE="+filepath.Join(folder, "rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE="+filepath.Join(folder, "rabbitmq"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(folder, "enabled_plugins"),
		"RABBITMQ_MNESIA_BASE="+filepath.Join(folder, "data"),
		"RABBITMQ_LOG_BASE="+filepath.Join(folder, "log"),
		// The script becomes the server, without a shell in between.
		"RUNNING_UNDER_SYSTEMD=true",
	)
	return cmd
}

// dialRabbitMQ opens a connection, on which each client has a channel.
func dialRabbitMQ(
	s *Server, queue string, priorities int, quorum bool,
) (func() (*Client, error), error) {
	connection, err := amqp.Dial("amqp://guest:guest@" + s.address)
	if err != nil {
		return nil, err
	}

	s.onStop(func() { _ = connection.Close() })
	s.Version, _ = connection.Properties["version"].(string)
	arguments, levels, lowest := declaration(quorum, s.Version, priorities)
	return func() (*Client, error) {
		c := &rabbitClient{connection: connection, queue: queue}
		c.priority = func(p int) uint8 { return uint8(lowest + levels - 1 - p*levels/priorities) }
		if err := c.open(arguments); err != nil {
			return nil, err
		}
		return &Client{Push: c.push, Pop: c.pop, Work: c.work, Rest: c.rest}, nil
	}, nil
}

// rabbitClient is one client. Its consumer has a channel of its own, and lives as long as a turn,
// since it is sent items before it asks for them.
type rabbitClient struct {
	connection *amqp.Connection
	channel    *amqp.Channel
	queue      string
	priority   func(int) uint8 // of a message; RabbitMQ has the most urgent last

	consuming  *amqp.Channel // nil if there is no consumer
	deliveries <-chan amqp.Delivery
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
		m.Priority = c.priority(item.Priority)
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
	return [][]byte{m.Body}, err
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
	return err
}

func (c *rabbitClient) work(ctx context.Context, n int) (values [][]byte, err error) {
	if err := c.consume(n); err != nil {
		return nil, err
	}

	var last amqp.Delivery
	for len(values) < n {
		d, err := receive(ctx, c.deliveries)
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
