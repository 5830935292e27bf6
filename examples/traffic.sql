-- Each statement is a subscription: its name, the broker where the subscriber is, and the question.

-- name: slow-roads
-- at: north
SELECT highway, avg(speed) AS speed, count(*) FROM traffic
WHERE speed < 60
GROUP BY window(ts, '20 seconds', '2 seconds'), highway
HAVING avg(speed) < 25;

-- name: busy-major-roads
-- at: south
SELECT sum(vehicles) AS vehicles, max(vehicles) FROM traffic
WHERE road_type = 'MAJOR_ROAD'
GROUP BY window(ts, '20 seconds', '2 seconds');

-- name: busy-major-roads-average
-- at: west
SELECT avg(vehicles) FROM traffic
WHERE road_type = 'MAJOR_ROAD'
GROUP BY window(ts, '20 seconds', '2 seconds');

-- name: median-travel-time
-- at: west
SELECT median(travel_time), approx_percentile(travel_time, 0.95) AS slowest FROM traffic
WHERE city = 'Aarhus'
GROUP BY window(ts, '30 seconds');

-- name: crawling
-- at: south
SELECT highway, segment, speed FROM traffic
WHERE speed < 5 AND vehicles > 10;
