"""The demo: three tenants, a real foreman with two workers, the dashboard, real numbers.

shop     what the jobs do: the application that workers load
story    who enqueues what and when, again and again
"""
