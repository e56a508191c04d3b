package clients_test

// working has jobs that go well.
var working = []scenario{
	{"push and work", pushAndWork},
	{"result", result},
	{"call", call},
	{"several queues", severalQueues},
}

// Jobs are done in the order of their priorities, once each, and leave nothing behind.
func pushAndWork(s *story) {
	d := s.driver()
	d.pushes("job1", in{"priority": "5", "value": do(step{"wait", "10ms"})})
	d.pushes("job2", in{"priority": "-1", "value": b64("no script"), "type": "email"})
	d.pushes("job3", in{"value": do()})
	s.holds("jobs", "job2 -1 ready 0", "job3 0 ready 0", "job1 5 ready 0")

	d.answers("work", in{"concurrency": "1"}, `null`)

	d.hears("start job2 1 type email", "end job2 done")
	d.hears("start job3 1", "end job3 done")
	d.hears("start job1 1", "end job1 done")
	d.answers("stop", nil, `null`)
	s.holds("jobs")
}

// A job that is kept has a result, which is found by its id and by its message id.
func result(s *story) {
	d := s.driver()
	ok := do(step{"return", b64("ok")})
	d.pushes("job1", in{"keep": "1h", "msgId": "invoice-17", "value": ok})
	d.pushes("job2", in{"keep": "1h", "value": do(step{"return"})})
	ready := `{"state":"ready","value":null,"error":"","reason":"","progress":null}`
	d.answers("result", in{"id": "job1"}, ready)

	waits := d.ask("result", in{"id": "job1", "wait": "1m"})
	d.answers("work", nil, `null`)

	d.hears("start job1 1", "end job1 done", "start job2 1", "end job2 done")
	waits.answers(done(b64("ok")))
	d.answers("result", in{"msgId": "invoice-17"}, done(b64("ok")))
	d.answers("result", in{"id": "job2", "wait": "1m"}, done(""))
	s.kept("jobs", "job2 0 done 1", "job1 0 done 1")
}

// One worker does the jobs of several queues.
func severalQueues(s *story) {
	d := s.driver()
	d.pushes("job1", nil)
	d.pushes("job2", in{"queue": "mail"})
	d.answers("work", in{"queues": []string{"jobs", "mail"}}, `null`)
	d.hears("start job1 1", "end job1 done", "start job2 1", "end job2 done")

	d.pushes("job3", in{"queue": "mail"})
	d.hears("start job3 1", "end job3 done")
	d.pushes("job4", nil)
	d.hears("start job4 1", "end job4 done")
	d.answers("stop", nil, `null`)
	s.holds("jobs")
	s.holds("mail")
}

// A call returns what the job does, or says that it has failed.
func call(s *story) {
	d := s.driver()
	d.answers("work", nil, `null`)

	d.answers("call", in{"value": do(step{"return", b64("hello")}), "wait": "1m"}, `"aGVsbG8="`)
	d.hears("start job1 1", "end job1 done")

	d.answers("call", in{"value": do(step{"return", ""}), "wait": "1m"}, `""`)
	d.hears("start job2 1", "end job2 done")

	d.refuses("call", in{"value": do(step{"drop", "no such user"}), "wait": "1m"}, "JobFailed")
	d.hears("start job3 1", "end job3 failed")
	s.holds("jobs-dead", "job3 0 ready 0 no such user")
}
