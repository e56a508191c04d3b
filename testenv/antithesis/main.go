// Command antithesis is a workload in the form that Antithesis runs: it tests a whole system while
// Antithesis breaks it. The name that it is called by, as /opt/antithesis/test/v1/queues has it,
// says what it does:
//
//   - setup waits for the service, and says that Antithesis may begin. Its container stays up.
//   - first_configure sets what some of the queues limit.
//   - parallel_driver_requests makes random requests, one after the other. Several run at
//     once.
//   - anytime_order looks at all queues, whatever happens meanwhile.
//   - eventually_checked runs alone, without faults: it empties the queues, and checks the history
//     of all drivers, killed ones as well, as package proof does.
//
// NATS_URL names the server, and HISTORY_DIR a folder that the commands share. Each driver adds two
// lines to a file of its own there: before a request, and with its answer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/antithesishq/antithesis-sdk-go/assert"
	"github.com/antithesishq/antithesis-sdk-go/lifecycle"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

const (
	// driversPerQueue is how many drivers use a queue before others use the next one, so that the
	// history of each stays short enough to check.
	driversPerQueue = 4
	// patience is how long a command waits for the service.
	patience = 5 * time.Minute
	// requestTimeout is how long a client waits for an answer.
	requestTimeout = 2 * time.Second
	// checkTimeout is how long the check of one queue may take.
	checkTimeout = 10 * time.Minute
	// skew is by how much the clocks of containers may differ.
	skew = 100 * time.Millisecond
	// limited is how many queues have max_leased_per_group.
	limited = 50
)

// commands are named as Antithesis asks for.
var commands = map[string]func(*workload){
	"setup":                    setup,
	"first_configure":          configure,
	"parallel_driver_requests": drive,
	"anytime_order":            look,
	"eventually_checked":       check,
}

// workload is what all commands have.
type workload struct {
	client *client.Client
	dir    string
}

func main() {
	command := commands[filepath.Base(os.Args[0])]
	if command == nil {
		log.Fatalf("%s: not the name of a command", os.Args[0])
	}

	nc, err := nats.Connect(os.Getenv("NATS_URL"),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond))
	must(err)
	defer nc.Close()
	c := client.New(nc, client.WithTimeout(requestTimeout))
	command(&workload{c, os.Getenv("HISTORY_DIR")})
}

// must ends the command if it cannot go on.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// await waits until the service answers.
func (w *workload) await() { insist(w.client.PriorityQueue(name(0)).Len) }

// insist makes a request that changes nothing until it succeeds.
func insist[T any](request func(context.Context) (T, error)) (answer T) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		answer, err := request(context.Background())
		if err == nil {
			return answer
		}
		if time.Since(begin) > patience {
			log.Fatalf("the service does not come back: %v", err)
		}
	}
}

func name(n int) string { return fmt.Sprintf("queue-%d", n) }

// limits returns max_leased_per_group of the queues that have it, every other one.
func limits() map[string]int {
	limits := map[string]int{}
	for n := range limited {
		limits[name(2*n+1)] = 1
	}
	return limits
}

func setup(w *workload) {
	w.await()
	lifecycle.SetupComplete(nil)
	select {}
}

func configure(w *workload) {
	for queue, n := range limits() {
		insist(func(ctx context.Context) (client.Settings, error) {
			change := client.Settings{MaxLeasedPerGroup: int64(n)}
			return w.client.PriorityQueue(queue).Configure(ctx, change)
		})
	}
	assert.Reachable("the queues are configured", nil)
}
