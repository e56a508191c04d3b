// Pushes two jobs and pops the one that comes first.
package main

import (
	"cmp"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	for job, priority := range map[string]string{"write the report": "5", "put out the fire": "1"} {
		push := nats.NewMsg("pq.jobs.push")
		push.Header.Set("Pq-Priority", priority)
		push.Data = []byte(job)
		request(nc, push) // when it returns, the job is on disk
	}

	first := request(nc, nats.NewMsg("pq.jobs.pop.min"))
	fmt.Printf("%s (priority %s)\n", first.Data, first.Header.Get("Pq-Priority"))
}

// request returns the reply. Errors come as headers of the reply.
func request(nc *nats.Conn, m *nats.Msg) *nats.Msg {
	reply, err := nc.RequestMsg(m, 5*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		log.Fatal(code, " ", reply.Header.Get("Nats-Service-Error"))
	}
	return reply
}
